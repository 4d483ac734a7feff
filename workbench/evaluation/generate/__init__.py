"""Writing: a translation, a summary, an answer to a text (BLEU, chrF, ROUGE)."""
