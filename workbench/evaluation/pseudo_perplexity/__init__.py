"""How well a masked language model predicts every token from all others: pseudo-perplexity, beside unigrams."""
