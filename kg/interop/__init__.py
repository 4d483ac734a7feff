"""Weights of other people's knowledge-enhanced models."""
