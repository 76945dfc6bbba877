"""What other libraries find when they meet a traced value: NumPy's and SciPy's protocols.

Importing it gives traced values their operators and methods, and enters NumPy's functions.
"""

from fdbr.interop import (
    methods,
    numpy_bits,
    numpy_fft,
    numpy_linalg,
    numpy_more,
    numpy_numeric,
    numpy_polynomials,
    numpy_protocol,
    numpy_refusals,
    numpy_statistics,
    scipy_protocol,
    texts,
)
