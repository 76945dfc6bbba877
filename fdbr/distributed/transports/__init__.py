"""Movers of bytes between ranks: one class for each library that does it."""
