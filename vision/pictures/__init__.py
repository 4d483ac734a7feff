"""Pictures of runs that read images: `workbench show PICTURE RUN ...`."""
