"""Convolutions and windows on the CPU."""
