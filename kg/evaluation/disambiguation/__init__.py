"""Which candidate a mention means, by a model that links (evaluation only)."""
