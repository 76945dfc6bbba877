"""The coefficients of kernels are what the script that fits them gives."""

import pytest

from fdbr.backends.cpu.codegen.math import coefficients

mpmath = pytest.importorskip("mpmath", reason="the fits are made with mpmath")


@pytest.mark.parametrize("name", ["K0_SMALL", "I1_SMALL", "ERFCX"])
def test_coefficients_are_those_of_the_fit(name):
    from benchmarks.accuracy.fitting import FITS, TOLERANCE, fitted

    with mpmath.workdps(60):
        assert tuple(fitted(*FITS[name], TOLERANCE)) == getattr(coefficients, name)


def test_each_fit_is_there():
    from benchmarks.accuracy.fitting import FITS

    assert set(FITS) == {name for name in vars(coefficients) if name.isupper()}
