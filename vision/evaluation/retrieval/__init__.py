"""Image-text retrieval, both ways: recall at 1, 5, 10 and median rank."""
