"""The relation between two marked mentions of a text: accuracy, macro F1, TACRED's scores."""
