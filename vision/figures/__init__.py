"""Figures of runs that read images: `workbench show FIGURE RUN ...`."""
