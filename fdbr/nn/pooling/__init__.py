"""Layers that pool, and that change the resolution."""
