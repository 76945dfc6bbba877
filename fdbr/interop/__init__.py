"""The protocols by which NumPy and SciPy find fdbr when they meet a traced value.

Importing it gives traced values their operators and methods, and enters NumPy's functions.
"""

from fdbr.interop import (
    assignment,
    inplace,
    methods,
    numpy_basics,
    numpy_bits,
    numpy_fft,
    numpy_folds,
    numpy_linalg,
    numpy_more,
    numpy_numeric,
    numpy_polynomials,
    numpy_products,
    numpy_protocol,
    numpy_quantiles,
    numpy_reductions,
    numpy_refusals,
    numpy_sets,
    numpy_statistics,
    numpy_ufuncs,
    scipy_array_api,
    scipy_distributions,
    scipy_protocol,
    scipy_refusals,
    texts,
)
from fdbr.pytrees.structure import settle

settle()  # libraries that are there already, whose methods somebody may hold on to
