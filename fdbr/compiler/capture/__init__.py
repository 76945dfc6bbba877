"""Capture: from a run of a function to a program, and to all that the program depends on."""
