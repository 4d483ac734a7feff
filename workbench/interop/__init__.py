"""Import and export of weights: Hugging Face checkpoints and the original published code."""
