"""The CPU back end: programs as Python functions that call NumPy and compiled kernels."""
