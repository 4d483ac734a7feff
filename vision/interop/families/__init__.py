"""Checkpoint families of vision-language models, one file each (`workbench.interop.family`)."""
