"""Zero-shot classification: images to classes that are named, by the vectors of a dual encoder."""
