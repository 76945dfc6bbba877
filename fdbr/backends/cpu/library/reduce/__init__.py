"""Reductions of large arrays on the CPU."""
