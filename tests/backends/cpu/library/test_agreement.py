"""What the library computes is what the definitions of operations say, for arrays of all sizes."""

import numpy as np
import pytest

from fdbr.core.primitive import registry
from fdbr.ops.moments import adam_step
from fdbr.ops.nn.activations.exponentials import minus_max, softmax_of_finite
from fdbr.ops.nn.losses.labels import are_classes, select_labels
from fdbr.ops.nn.losses.softmax_losses import hard_losses
from fdbr.ops.nn.normalization.standardizing import affine_cotangents
from fdbr.ops.nn.one_hot import ones_at

LENGTHS = 3, 70, 3000  # of rows: those of few, many elements, and of arrays that kernels compute
DTYPES = "float32", "float64"


def numbers(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_alike(found, expected, dtype):
    found, expected = (x if type(x) is tuple else (x,) for x in (found, expected))
    scale = 40 * np.finfo(dtype).eps
    for x, y in zip(found, expected, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=scale, atol=scale * max(1, np.abs(y).max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("standardize", {"axes": (1,), "eps": 1e-5}),
        ("rescale", {"axes": (1,), "eps": 1e-5}),
        ("softmax", {"axes": (1,)}),
        ("log_softmax", {"axes": (1,)}),
        ("logsumexp", {"axes": (1,)}),
        ("relu", {}),
        ("softplus", {"beta": 1.0}),
        ("log_sigmoid", {}),
        ("normal_cdf", {}),
        ("gelu", {}),
        ("gelu_tanh", {}),
    ],
)
def test_an_operation_of_one_array_is_its_definition(name, params, length, dtype):
    primitive, x = registry[name], numbers(40, length, dtype=dtype)
    assert_alike(primitive.host(np, x, **params), primitive.value(np, x, **params), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_a_normalization_with_weight_and_bias_is_its_definition(axes, length, dtype):
    x, ct = (numbers(40, length, dtype=dtype, seed=i) for i in range(2))
    weight, bias = (numbers(length, dtype=dtype, seed=i) for i in (2, 3))
    primitive, params = registry["standardize_affine"], {"axes": axes, "eps": 1e-5}
    found = primitive.host(np, x, weight, bias, **params)
    assert_alike(found, primitive.value(np, x, weight, bias, **params), dtype)
    _, y, _, variance = found
    given = ct, y, weight, np.sqrt(variance + 1e-5), axes
    by_x, *sums = affine_cotangents(*given)
    expected, *others = affine_cotangents.definition(*given)
    assert_alike((by_x(), *sums), (expected(), *others), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [3, 70, 3000])
@pytest.mark.parametrize("count", [2, 600])
def test_losses_of_labels_are_their_definitions(count, classes, dtype):
    x, labels = numbers(count, classes, dtype=dtype), np.arange(count) % classes
    assert_alike(hard_losses(x, labels), hard_losses.definition(x, labels), dtype)
    primitive = registry["cross_entropy"]
    assert_alike(primitive.host(np, x, labels), primitive.value(np, x, labels), dtype)
    assert_alike(select_labels(x, labels), select_labels.definition(x, labels), dtype)
    for check in (are_classes, are_classes.definition):
        assert check(labels, classes)
        assert not check(labels, labels.max())
        assert not check(labels - 1, classes)
    for position in (0, 1):
        given = labels, labels > 0, classes, position, dtype
        assert_alike(ones_at(*given), ones_at.definition(*given), dtype)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("length", LENGTHS)
def test_numbers_that_are_not_finite_give_the_same_as_by_the_definition(length, special):
    x = numbers(40, length)
    x[1], x[2, 0] = special, special
    with np.errstate(invalid="ignore"):
        for routine, given in (
            (minus_max, (x, (1,), 0.0)),
            (softmax_of_finite, (x, x.max(axis=1, keepdims=True), (1,))),
        ):
            for found, expected in zip(routine(*given), routine.definition(*given), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex128"])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("size", [7, 100_000])
def test_a_step_of_adam_is_its_definition(size, nesterov, dtype):
    g, mu, nu = (numbers(size, dtype=dtype, seed=i) for i in range(3))
    given = g, mu, abs(nu), (0.9, 0.999, 1e-8, 0.0), (0.1, 0.001, 0.19), nesterov
    for found, expected in zip(adam_step(*given), adam_step.definition(*given), strict=True):
        np.testing.assert_array_equal(found, expected)
