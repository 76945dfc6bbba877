"""Capture: from a run of a function to a program, and to everything that the program depends on."""
