"""Implementations of single operations, used eagerly and by compiled programs."""
