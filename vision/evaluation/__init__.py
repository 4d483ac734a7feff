"""Evaluation of vision-language models: visual question answering and image-text retrieval."""
