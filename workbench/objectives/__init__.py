"""Objectives, one file each; their contract is `workbench.pretraining.objective`."""
