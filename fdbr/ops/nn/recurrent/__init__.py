"""Recurrent units and cells, over sequences too."""
