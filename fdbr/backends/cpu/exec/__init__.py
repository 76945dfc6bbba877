"""Execution of a compiled program as a sequence of calls and kernels."""
