"""Compiled kernels: fused steps as loops over elements."""
