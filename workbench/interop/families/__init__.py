"""Checkpoint families of texts, one file each (`workbench.interop.family`)."""
