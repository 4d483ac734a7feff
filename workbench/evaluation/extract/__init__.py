"""The stretch of a text that answers a question (SQuAD 1.1 and 2.0): exact match and F1 over words."""
