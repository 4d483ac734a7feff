"""Weights from and to other code: the Hugging Face classes, the original released code."""
