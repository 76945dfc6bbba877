"""Threads, freed memory, pickling, and files that are written atomically."""
