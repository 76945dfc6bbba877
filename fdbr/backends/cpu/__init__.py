"""The CPU: programs as functions of Python that call NumPy and compiled kernels."""
