"""Attention, embeddings and positions."""
