"""The pretraining workbench."""
