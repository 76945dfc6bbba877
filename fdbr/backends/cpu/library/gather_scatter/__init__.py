"""Gathers and scatters on the CPU."""
