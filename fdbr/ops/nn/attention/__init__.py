"""Attention, embeddings and position encodings."""
