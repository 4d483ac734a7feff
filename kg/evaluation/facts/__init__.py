"""Rank the object of a fact in a sentence with a slot."""
