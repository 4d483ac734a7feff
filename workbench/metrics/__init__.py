"""Scores of predictions: pure functions, for objectives in held-out passes and for evaluations alike."""
