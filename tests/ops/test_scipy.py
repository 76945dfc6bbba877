"""SciPy's other functions: what works, what is refused, and the page that says so."""

import numpy as np
import pytest
import scipy
import scipy.linalg
import scipy.stats

import fdbr
from benchmarks import scipy_table
from fdbr import ops


def test_the_table_of_the_documentation_is_that_of_this_scipy():
    page = scipy_table.PAGE.read_text()
    if f"SciPy {scipy.__version__.rpartition('.')[0]}." not in page:
        pytest.skip(f"the table is of another SciPy than {scipy.__version__}")
    table = scipy_table.table()
    assert "wrong" not in table
    assert "refused: " not in table  # without saying what to use instead
    assert table in page, "run python -m benchmarks.scipy_table"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (scipy.linalg.inv, r"scipy\.linalg\.inv of a traced .*Use ops\.linalg\.inv"),
        (scipy.linalg.cholesky, r"scipy\.linalg\.cholesky of a traced .*Use ops\.linalg\.cholesky"),
        (scipy.stats.zscore, r"scipy\.stats\.zscore of a traced .*SCIPY_ARRAY_API=1"),
    ],
)
def test_what_scipy_computes_on_numpy_arrays_is_refused_by_its_name(call, message):
    with pytest.raises(TypeError, match=message):
        fdbr.grad(lambda x: ops.sum(call(x)))(np.eye(3))
