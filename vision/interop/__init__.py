"""Weights of other people's vision-language models."""
