"""The class of a text or of a pair of texts: accuracy, macro F1, Matthews correlation."""
