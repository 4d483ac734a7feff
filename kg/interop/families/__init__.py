"""Release families of knowledge-enhanced texts, one file each (`workbench.interop.family`)."""
