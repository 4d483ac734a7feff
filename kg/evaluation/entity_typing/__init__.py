"""The types of a marked mention, multi-label: strict, loose macro and loose micro scores."""
