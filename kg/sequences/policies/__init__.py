"""Policies of masking that know more of words than where they stand."""
