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
    "truncated_normal": initializers.truncated_normal(),
    "kaiming_normal": initializers.kaiming_normal(),
    "kaiming_uniform": initializers.kaiming_uniform(5**0.5),
    "xavier_normal": initializers.xavier_normal(),
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


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_variance_scaling_has_the_variance_that_it_says(mode, distribution):
    value = initializers.variance_scaling(3.0, mode, distribution)(
        random.key(1), (60, 90, 5, 5), "float64"
    )
    fans = {"fan_in": 2250, "fan_out": 1500, "fan_avg": 1875, "fan_geo_avg": 2250**0.5 * 1500**0.5}
    assert value.var() == pytest.approx(3.0 / fans[mode], rel=0.02)
    if distribution == "truncated_normal":
        assert abs(value).max() <= 2 / 0.8796 * math.sqrt(3.0 / fans[mode])


def test_a_scale_multiplies_the_standard_deviation():
    for name in BY_FAN:
        once = ALL[name](random.key(1), (5, 6), "float64")
        twice = getattr(initializers, name)(2.0)(random.key(1), (5, 6), "float64")
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-12)


def test_pytorchs_names_are_the_same_initializers():
    assert initializers.kaiming_normal() == initializers.he_normal()
    assert initializers.kaiming_uniform(mode="fan_out") == initializers.he_uniform(mode="fan_out")
    assert initializers.xavier_normal(2.0) == initializers.glorot_normal(2.0)
    assert initializers.xavier_uniform() == initializers.glorot_uniform()
    gains = {"linear": 1, "tanh": 5 / 3, "relu": 2**0.5, "selu": 0.75, "sigmoid": 1}
    for name, gain in gains.items():
        assert initializers.calculate_gain(name) == pytest.approx(gain)
    assert initializers.calculate_gain("leaky_relu", 0.2) == pytest.approx((2 / 1.04) ** 0.5)


def test_truncated_normal_numbers_keep_between_their_bounds():
    value = initializers.truncated_normal(0.5, -1.0, 2.0)(random.key(0), (2000,), "float64")
    assert value.min() >= -0.5
    assert 0.9 < value.max() <= 1.0


def test_patterns():
    np.testing.assert_array_equal(initializers.identity(3.0)(None, (2, 2)), 3 * np.eye(2))
    np.testing.assert_array_equal(initializers.eye()(None, (3, 2)), np.eye(3, 2))
    assert np.isnan(initializers.nan()(None, (2, 2))).all()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.integers(1, 3))
def test_dirac_convolutions_hand_on_their_inputs(kernel, channels, times, groups):
    shape = (channels * groups * times, channels, kernel)
    weight = initializers.dirac(groups)(None, shape, "float64")
    expected = np.zeros(shape)
    size = channels * times
    for group in range(groups):
        for channel in range(min(size, channels)):
            expected[group * size + channel, channel, kernel // 2] = 1
    np.testing.assert_array_equal(weight, expected)


def test_delta_orthogonal_convolutions_keep_norms():
    weight = initializers.delta_orthogonal(2.0)(random.key(0), (5, 3, 3, 4), "float64")
    middle = weight[:, :, 1, 2]
    np.testing.assert_allclose(middle.T @ middle, 4 * np.eye(3), atol=1e-12)
    assert np.count_nonzero(weight) == middle.size


@pytest.mark.parametrize(("sparsity", "zeros"), [(0.0, 0), (0.3, 3), (1.0, 7)])
def test_sparse_columns_have_their_share_of_zeros(sparsity, zeros):
    value = initializers.sparse(sparsity, 0.5)(random.key(0), (7, 40))
    assert ((value == 0).sum(axis=0) == zeros).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: initializers.identity()(None, (2, 3)), "identity: .* square matrix"),
        (lambda: initializers.eye()(None, (2,)), "eye: .* a matrix"),
        (lambda: initializers.dirac()(None, (2, 3)), "dirac: .* no convolution"),
        (lambda: initializers.dirac(2)(None, (3, 3, 1)), "multiple of groups, 2"),
        (lambda: initializers.delta_orthogonal()(random.key(0), (2, 3, 1)), "as many outputs"),
        (lambda: initializers.sparse(1.5), "sparsity must be from 0 to 1"),
        (lambda: initializers.sparse(0.5)(random.key(0), (3,)), "sparse: .* a matrix"),
        (lambda: initializers.truncated_normal(1.0, 2.0, 2.0), "lower must be less"),
        (lambda: initializers.he_normal(mode="fan"), "mode must be one of fan_in"),
        (lambda: initializers.kaiming_normal(nonlinearity="gelu"), "nonlinearity must be one of"),
        (lambda: initializers.orthogonal(mode="square"), "mode must be one of auto"),
        (lambda: initializers.orthogonal(mode="basis")(random.key(0), (2, 3)), "is no basis"),
        (lambda: initializers.orthogonal(mode="embedding")(random.key(0), (2, 3)), "embedding"),
        (lambda: initializers.orthogonal(mode="projection")(random.key(0), (3, 2)), "projection"),
        (lambda: initializers.variance_scaling(0, "fan_in", "normal"), "scale must be a positive"),
    ],
)
def test_wrong_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=rf"^fdbr\.nn\.initializers\..*{message}"):
        call()


def test_arrays_are_generated_of_what_stands_for_an_initializer():
    assert initializers.generate_array(2, None, (2, 3)).tolist() == [[2.0] * 3] * 2
    rows = initializers.generate_array(np.arange(3), None, (2, 3), "float64")
    assert rows.tolist() == [[0.0, 1.0, 2.0]] * 2
    made = initializers.generate_array(None, random.key(0), (2, 3))
    assert (made == initializers.lecun_normal()(random.key(0), (2, 3))).all()
    assert not made.flags.writeable
    assert not rows.flags.writeable
    with pytest.raises(TypeError, match="must be a function"):
        initializers.generate_array("zeros", None, (2,))
