"""Sequence builders of vision, by the short names `vision.*`."""
