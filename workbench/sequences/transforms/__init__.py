"""Transforms: changes to sequences after their builder."""
