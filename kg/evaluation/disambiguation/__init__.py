"""Which candidate a mention means, by a model that links."""
