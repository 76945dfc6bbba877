"""Convolutions and their kin."""
