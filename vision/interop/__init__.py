"""Checkpoints of vision-language models of Hugging Face and of published code."""
