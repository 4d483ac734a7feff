"""The number of a text or a pair of texts (similarity, a rating): Pearson and Spearman correlation."""
