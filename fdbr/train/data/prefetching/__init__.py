"""Batches that are read ahead, by threads or by processes, in an order that no timing changes."""
