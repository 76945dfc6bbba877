"""Argument checks, messages, and the errors of public functions."""
