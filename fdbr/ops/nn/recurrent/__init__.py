"""Recurrent units, cells, and layers over sequences."""
