"""Transforms of sequences with images, one file each."""
