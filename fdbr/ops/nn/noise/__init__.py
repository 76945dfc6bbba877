"""Dropout and its variants, and random samples."""
