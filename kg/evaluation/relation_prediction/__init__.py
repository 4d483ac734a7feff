"""The relation between two entities: its rank among all relations of the graph: mean rank, Hits@k, MRR."""
