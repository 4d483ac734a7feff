"""Transforms: what changes sequences behind their builder."""
