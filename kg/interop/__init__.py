"""Pretrained weights of published knowledge-enhanced models."""
