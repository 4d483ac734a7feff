"""Lexicons: the possible senses of words, and their sentiment."""
