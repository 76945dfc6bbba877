"""Snapshots of runs on many ranks, whole or in parts, and the way back from them."""
