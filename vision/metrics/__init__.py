"""Scores of vision-language tasks."""
