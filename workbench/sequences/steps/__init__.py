"""Steps: what changes sequences behind their builder."""
