"""Convolutional layers, and blocks of them."""
