"""Watching: what a captured function reads from outside, and how changes of it are detected."""
