"""Dropout and its kin, and random samples."""
