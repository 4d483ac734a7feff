"""Lexicons: what words may mean, and what they are said to feel like, by word."""
