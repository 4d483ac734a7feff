"""The class of a text, a pair of texts, or a caption with its pictures: accuracy, macro F1, Matthews correlation."""
