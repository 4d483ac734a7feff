"""Is a triple true? By a threshold for each relation, of a run or of vectors: accuracy, precision, recall, F1."""
