"""Threads, freed memory, and files that are written atomically."""
