"""Threads, machine code, and its cache."""
