"""The coloured squares and their runs."""

from tests.vision.evaluation.conftest import contrast, matching, squares, test_corpus, train

__all__ = ["contrast", "matching", "squares", "test_corpus", "train"]
