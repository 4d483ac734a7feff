"""Visual question answering: classification over an answer vocabulary, accuracy by the official rules."""
