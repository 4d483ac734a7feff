"""How well a model that writes text predicts every next token: perplexity, bits per byte, beside unigrams."""
