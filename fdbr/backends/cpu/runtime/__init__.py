"""Threads, machine code, its cache, and compilation in the background."""
