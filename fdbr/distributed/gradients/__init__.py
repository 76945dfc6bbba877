"""Gradients of many ranks: their average, as a transformation, and while backward still runs."""
