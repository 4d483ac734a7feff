"""Objectives, one file each; `workbench.tasks.objective` says what an objective is."""
