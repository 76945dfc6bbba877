"""Initial values of parameters."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random
from fdbr.nn import initializers

ALL = {
    "lecun_normal": initializers.lecun_normal(),
    "lecun_uniform": initializers.lecun_uniform(),
    "glorot_normal": initializers.glorot_normal(),
    "glorot_uniform": initializers.glorot_uniform(),
    "he_normal": initializers.he_normal(),
    "he_uniform": initializers.he_uniform(),
    "normal": initializers.normal(),
    "uniform": initializers.uniform(),
    "orthogonal": initializers.orthogonal(),
    "constant": initializers.constant(2.0),
    "zeros": initializers.zeros(),
    "ones": initializers.ones(),
}
BY_FAN = [name for name in ALL if name.split("_")[0] in ("lecun", "glorot", "he")]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3, 3)])
def test_initial_values_have_shape_and_dtype_and_are_read_only(name, dtype, shape):
    value = ALL[name](random.key(0), shape, dtype)
    assert value.shape == shape
    assert value.dtype == dtype
    assert not value.flags.writeable
    assert value.base is None or not value.base.flags.writeable


@pytest.mark.parametrize("name", ALL)
def test_initial_values_are_float32_unless_asked_otherwise(name):
    assert ALL[name](random.key(0), (2, 2)).dtype == np.float32


@pytest.mark.parametrize("name", ALL)
def test_an_initializer_is_a_pure_function_of_its_key(name):
    first, again = (ALL[name](random.key(3), (4, 4)) for _ in range(2))
    assert (first == again).all()


@pytest.mark.parametrize("name", BY_FAN)
@pytest.mark.parametrize("shape", [(200, 300), (60, 40, 5, 5)])
def test_variance_follows_the_fans_of_the_layout_of_pytorch(name, shape):
    kernel = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * kernel, shape[0] * kernel
    variance = {
        "lecun": 1 / fan_in,
        "glorot": 2 / (fan_in + fan_out),
        "he": 2 / fan_in,
    }[name.split("_")[0]]
    value = ALL[name](random.key(1), shape, "float64")
    assert value.mean() == pytest.approx(0, abs=5 * math.sqrt(variance / value.size))
    assert value.var() == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize("name", [name for name in BY_FAN if name.endswith("uniform")])
def test_uniform_values_are_bounded(name):
    value = ALL[name](random.key(1), (200, 300), "float64")
    assert abs(value).max() <= math.sqrt(3 * value.var()) * 1.05


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3))
def test_orthogonal_matrices_have_orthonormal_rows_or_columns(rows, columns, kernel):
    value = initializers.orthogonal(2.0)(random.key(0), (rows, columns, kernel), "float64")
    matrix = value.reshape(rows, -1) / 2.0
    gram = matrix @ matrix.T if rows <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)


def test_constants_need_no_key():
    assert (initializers.constant(3.0)(None, (2,)) == 3).all()
    assert (initializers.ones()(None, (2,)) == 1).all()
    assert (initializers.zeros()(None, (2,)) == 0).all()


@pytest.mark.parametrize("name", [*BY_FAN, "orthogonal"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 0), (0, 3)])
def test_a_shape_without_fans_is_refused(name, shape):
    with pytest.raises(ValueError, match="has no fan-in"):
        ALL[name](random.key(0), shape)


@pytest.mark.parametrize("make", ["normal", "uniform", "orthogonal"])
@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
def test_a_spread_that_is_not_positive_is_refused(make, value):
    with pytest.raises(ValueError, match=f"{make}: .* must be a positive number"):
        getattr(initializers, make)(value)


def test_initializers_are_values():
    assert initializers.he_normal() == initializers.he_normal()
    assert initializers.he_normal() != initializers.he_uniform()
    assert repr(initializers.normal(0.5)) == "Normal(stddev=0.5)"
