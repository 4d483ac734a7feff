"""The missing end of a triple: its rank among all entities, of a run or of vectors: MRR, Hits@k, mean rank."""
