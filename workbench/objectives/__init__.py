"""Objectives, one file each; `workbench.pretraining.objective` says what an objective is."""
