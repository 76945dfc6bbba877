"""The floating dtypes of 16 bits: NumPy's, and that of ml_dtypes where it is installed."""

from typing import Any

import numpy as np
import pytest

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

added = pytest.mark.skipif(ml_dtypes is None, reason="bfloat16 is a dtype of ml_dtypes")
"""The mark of tests that need dtypes of ml_dtypes."""

every_short_dtype = pytest.mark.parametrize(
    "dtype", ["float16", pytest.param("bfloat16", marks=added)]
)


SHORT = [np.dtype(np.float16), *([] if ml_dtypes is None else [np.dtype("bfloat16")])]
"""Those that there are."""


def eps(dtype: Any) -> float:
    """The distance of 1 from the next number."""
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7}[str(np.dtype(dtype))]


def wide(x: Any) -> Any:
    """The same elements in double precision."""
    return np.asarray(x).astype(complex if np.asarray(x).dtype.kind == "c" else float)
