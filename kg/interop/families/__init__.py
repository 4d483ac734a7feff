"""Checkpoint families of knowledge-enhanced text models, one file each (`workbench.interop.family`)."""
