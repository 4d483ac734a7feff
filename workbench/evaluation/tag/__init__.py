"""The tags of the words of a text (named entities, parts of speech): accuracy, and F1 of the chunks that they spell."""
