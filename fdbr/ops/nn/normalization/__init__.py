"""Normalization by statistics."""
