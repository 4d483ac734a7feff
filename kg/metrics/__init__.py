"""Scores of knowledge tasks."""
