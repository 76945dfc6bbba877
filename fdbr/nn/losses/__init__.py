"""Layers that are losses."""
