"""Adapters: small modules that are trained beside a network that is not (`workbench.models.adapter`)."""
