"""Objectives, one file each; `workbench.objective` says what an objective is."""
