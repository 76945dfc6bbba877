"""Implementations of operations in CUDA C, for array modules that compile it."""
