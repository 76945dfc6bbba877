"""Layers of normalisation, and wrappers that normalise weights."""
