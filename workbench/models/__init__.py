"""Models: embeddings and layers over streams."""
