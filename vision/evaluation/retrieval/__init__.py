"""Retrieval of images or films by texts, and of texts by these: recall at 1, 5, 10 and median rank."""
