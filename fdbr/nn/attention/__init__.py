"""Attention, transformers and what belongs to them."""
