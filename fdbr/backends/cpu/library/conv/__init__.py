"""Convolutions on the CPU."""
