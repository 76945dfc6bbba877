"""Ranks that are processes."""

from pathlib import Path

import pytest
from launching import mpiexec

HERE = Path(__file__).parent


@pytest.mark.slow
def test_each_collective_of_each_dtype_is_what_numpy_says_on_1_to_4_ranks():
    found = mpiexec(4, HERE / "agreeing.py", timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["whole"] * 4


def test_derivatives_through_each_collective_are_those_of_one_process():
    found = mpiexec(2, HERE / "differentiating.py", timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["whole"] * 2
