"""Losses and measures of how good predictions are, one family a file."""
