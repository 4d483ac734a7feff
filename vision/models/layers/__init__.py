"""Layers of vision-language models, one file each."""
