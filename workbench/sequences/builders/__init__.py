"""Sequence builders, by short name: one module, one class each (`sentence_pair` -> `SentencePair`)."""
