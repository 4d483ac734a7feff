"""Vision-language objectives, one file each."""
