"""Normalisation, tables, dropout and activations: statistics, edges, errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, random
from fdbr.testing import assert_allclose

X = np.array([[1.0, 3.0, 8.0], [0.0, -2.0, 5.0]])


# --- normalisation ------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(2, 5))
def test_layers_have_mean_0_and_variance_1(n, width):
    x = np.random.Generator(np.random.Philox(n)).standard_normal((n, width))
    out = ops.layer_norm(x, eps=0.0)
    assert_allclose(out.mean(-1), np.zeros(n), atol=1e-12)
    assert_allclose(out.var(-1), np.ones(n), rtol=1e-9)
    assert_allclose((ops.rms_norm(x, eps=0.0) ** 2).mean(-1), np.ones(n), rtol=1e-9)


def test_batches_give_their_statistics_and_take_known_ones():
    x = np.random.Generator(np.random.Philox(1)).standard_normal((5, 3, 2))
    out, mean, variance = ops.batch_norm(x)
    assert_allclose(mean, x.mean((0, 2)))
    assert_allclose(variance, x.var((0, 2)))
    again, same, _ = ops.batch_norm(x, mean=mean, variance=variance)
    assert_allclose(again, out)
    assert_allclose(same, mean)


def test_groups_of_one_channel_are_instances_and_one_group_is_a_layer():
    x = np.random.Generator(np.random.Philox(1)).standard_normal((2, 4, 3))
    np.testing.assert_array_equal(ops.group_norm(x, 4), ops.instance_norm(x))
    assert_allclose(ops.group_norm(x, 1), ops.layer_norm(x, axis=(1, 2)))


def test_constant_examples_become_0_with_a_finite_derivative():
    for f in (ops.layer_norm, lambda x: ops.batch_norm(x)[0]):
        np.testing.assert_array_equal(f(np.ones((2, 3))), np.zeros((2, 3)))
        assert np.isfinite(fdbr.grad(lambda x, f=f: (f(x) * X).sum())(np.ones((2, 3)))).all()


NORMS = {
    "the last axis": (ops.layer_norm, (40, 5, 90), (90,), (90,), (2,)),
    "the last axes": (
        lambda *args: ops.layer_norm(*args, axis=(1, 2)),
        (24, 9, 80),
        (9, 80),
        (9, 80),
        (1, 2),
    ),
    "a first axis": (lambda *args: ops.layer_norm(*args, axis=0), (30, 700), (30,), (30, 1), (0,)),
    "a batch": (
        lambda *args: ops.batch_norm(*args)[0],
        (6, 8, 20, 20),
        (8,),
        (8, 1, 1),
        (0, 2, 3),
    ),
    "a batch of rows": (lambda *args: ops.batch_norm(*args)[0], (150, 130), (130,), (130,), (0,)),
    "instances": (ops.instance_norm, (6, 8, 20, 20), (8,), (8, 1, 1), (2, 3)),
    "groups": (
        lambda x, *rest: ops.group_norm(x, 2, *rest),
        (6, 8, 20, 20),
        (8,),
        (2, 4, 1, 1),
        (2, 3, 4),
    ),
    "groups of numbers": (
        lambda x, *rest: ops.group_norm(x, 2, *rest),
        (300, 64),
        (64,),
        (2, 32),
        (2,),
    ),
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_large_arrays_have_the_derivatives_of_their_formula(name, jitted):
    norm, shape, lengths, around, axes = NORMS[name]
    generator = np.random.Generator(np.random.Philox(5))
    x, ct, t = (generator.standard_normal(shape) for _ in range(3))
    weight, bias = 1 + generator.random(lengths), generator.standard_normal(lengths)

    def expected(x, weight, bias):
        parts = x.reshape(x.shape[0], 2, -1, *x.shape[2:]) if name.startswith("groups") else x
        away = parts - parts.mean(axes, keepdims=True)
        y = away / ops.sqrt((away * away).mean(axes, keepdims=True) + 1e-5)
        return (y * weight.reshape(around) + bias.reshape(around)).reshape(x.shape)

    def all_orders(f):
        def found(x, weight, bias, ct, t):
            def pull(*args):
                return fdbr.vjp(f, *args)[1](ct)

            value, push = fdbr.jvp(f, (x, weight, bias), (t, bias, weight))
            by_pull = fdbr.vjp(pull, x, weight, bias)[1]
            return value, push, pull(x, weight, bias), by_pull((t, weight, bias))

        return lambda *args: fdbr.tree.leaves(found(*args))

    run = fdbr.jit(all_orders(norm)) if jitted else all_orders(norm)
    args = x, weight, bias, ct, t
    wanted = all_orders(expected)(*args)
    for found in (run(*args), run(*args)):
        for a, b in zip(found, wanted, strict=True):
            assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    for a, b in zip(run(*(v.astype(np.float32) for v in args)), wanted, strict=True):
        assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_only_the_statistics_of_a_batch_may_be_differentiated():
    x = np.random.Generator(np.random.Philox(6)).standard_normal((150, 130))
    weight = np.ones(130)
    found = fdbr.grad(lambda x, w: sum(s.sum() for s in ops.batch_norm(x, w, w)[1:]), (0, 1))
    by_x, by_weight = found(x, weight)
    assert_allclose(by_x, 1 / 150 + 2 * (x - x.mean(0)) / 150, atol=1e-12)
    np.testing.assert_array_equal(by_weight, np.zeros(130))


def test_axes_are_given_in_any_order():
    w = np.arange(1.0, 7).reshape(2, 3)
    np.testing.assert_array_equal(
        ops.layer_norm(X, w, axis=(1, 0)), ops.layer_norm(X, w, axis=(0, 1))
    )


def test_float32_stays_float32_with_weights():
    x, w = X.astype(np.float32), np.ones(3, dtype=np.float32)
    for out in (ops.layer_norm(x, w, w), ops.rms_norm(x, w), *ops.batch_norm(x, w, w)):
        assert out.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.layer_norm(X * 1j), TypeError, "layer_norm: x must be real, not complex128"),
        (lambda: ops.layer_norm(X, np.ones(2)), ValueError, r"weight float64\[2\] .* shape \(3,\)"),
        (lambda: ops.batch_norm(X, None, np.ones(2)), ValueError, r"bias .* shape \(3,\)"),
        (lambda: ops.batch_norm(X, mean=np.ones(3)), ValueError, "give both mean and variance"),
        (lambda: ops.group_norm(X, 2), ValueError, "group_norm: .* with the 2 groups dividing"),
        (lambda: ops.instance_norm(X[0]), ValueError, r"instance_norm: x float64\[3\] must have"),
        (lambda: ops.layer_norm(X, axis=2), ValueError, "layer_norm: axis 2 is out of range"),
    ],
)
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- attention ----------------------------------------------------------------------


def test_a_query_sees_what_the_mask_lets_it_see():
    q, k = np.zeros((1, 2)), np.zeros((3, 2))
    v = np.array([[1.0], [2.0], [6.0]])
    out = ops.scaled_dot_product_attention(q, k, v, mask=np.array([[True, False, True]]))
    np.testing.assert_array_equal(out, [[3.5]])


def test_attention_names_what_does_not_fit():
    with pytest.raises(
        ValueError, match=r"query, key and value must have shapes .* float64\[2,3\]"
    ):
        ops.scaled_dot_product_attention(X, X.T, X)
    with pytest.raises(TypeError, match=r"mask must be booleans .* not int64"):
        ops.scaled_dot_product_attention(X, X, X, mask=np.ones((2, 2), "int64"))
    with pytest.raises(ValueError, match=r"mask must broadcast to .* \(2, 2\), got bool\[2,3\]"):
        ops.scaled_dot_product_attention(X, X, X, mask=X > 0)
    with pytest.raises(ValueError, match=r"attention: rate must be in \[0, 1\), .* not 2"):
        ops.scaled_dot_product_attention(X, X, X, dropout_p=2)
    with pytest.raises(TypeError, match=r"dropout_p=0.5 needs a key of fdbr.random"):
        ops.scaled_dot_product_attention(X, X, X, dropout_p=0.5)
    with pytest.raises(ValueError, match=r"with enable_gqa, axis -3 must be as many heads"):
        ops.scaled_dot_product_attention(X, X, X, enable_gqa=True)
    with pytest.raises(ValueError, match=r"the axes before the last two must broadcast"):
        ops.scaled_dot_product_attention(np.ones((4, 2, 3)), *[np.ones((2, 2, 3))] * 2)
    with pytest.raises(ValueError, match=r"mask and attn_mask are one"):
        ops.scaled_dot_product_attention(X, X, X, X[:, :2], attn_mask=X[:, :2])


# --- tables -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_rows_named_several_times_collect_all_cotangents(dtype):
    weight = np.arange(8).reshape(4, 2).astype(dtype)
    out, pullback = fdbr.vjp(lambda w: ops.embed(w, np.array([[1, 3], [1, 1]])), weight)
    assert out.dtype == dtype
    (gradient,) = pullback(np.ones((2, 2, 2), dtype=dtype))
    assert gradient.dtype == dtype
    np.testing.assert_array_equal(gradient[:, 0], [0, 3, 0, 1])


def test_no_index_gives_no_row():
    none = np.zeros((0, 2), int)
    assert ops.embed(X, none).shape == (0, 2, 3)
    gradient = fdbr.grad(lambda w: ops.embed(w, none).sum())(X)
    np.testing.assert_array_equal(gradient, np.zeros_like(X))


@pytest.mark.parametrize("indices", [[2], [-1]])
def test_an_index_out_of_range_is_refused(indices):
    with pytest.raises(ValueError, match=r"embed: indices from .* they must lie in 0 … 1"):
        ops.embed(X, np.array(indices))


def test_indices_must_be_integers():
    with pytest.raises(TypeError, match=r"embed: indices must be integers, not float64\[2\]"):
        ops.embed(X, np.ones(2))
    with pytest.raises(TypeError, match=r"one_hot: indices must be integers, not float64\[2\]"):
        ops.one_hot(np.ones(2), 3)


def test_one_hot_puts_its_axis_anywhere():
    indices = np.array([[0, 2], [1, 2]])
    out = ops.one_hot(indices, 3, axis=0, dtype=np.float32)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, (indices == np.arange(3)[:, None, None]).astype("f4"))
    np.testing.assert_array_equal(
        fdbr.vmap(lambda i: ops.one_hot(i, 3))(indices), ops.one_hot(indices, 3)
    )


# --- dropout ------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_what_it_keeps_is_scaled():
    x = np.ones(100_000, dtype=np.float32)
    out = ops.dropout(x, 0.25, key=random.key(1))
    assert out.dtype == np.float32
    assert set(np.unique(out).tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert abs(out.mean() - 1) < 4 * math.sqrt(1 / 3 / x.size)


def test_one_key_leaves_out_the_same_elements_and_so_does_the_gradient():
    key = random.key(2)
    gradient = fdbr.grad(lambda x: ops.dropout(x, 0.5, key=key).sum())(np.ones(50))
    np.testing.assert_array_equal(gradient, ops.dropout(np.ones(50), 0.5, key=key))
    other = ops.dropout(np.ones(50), 0.5, key=random.key(3))
    assert (gradient != other).any()


def test_a_batch_of_keys_leaves_out_what_each_key_does():
    keys = random.split(random.key(0), 4)
    drop = lambda key: ops.dropout(np.ones((3, 5)), 0.5, key=key)
    np.testing.assert_array_equal(fdbr.vmap(drop)(keys), np.stack([drop(key) for key in keys]))


def test_dropout_refuses_a_rate_or_a_key_that_is_none():
    with pytest.raises(ValueError, match=r"dropout: rate must be in \[0, 1\), .*, not 1\.5"):
        ops.dropout(X, 1.5, key=random.key(0))
    with pytest.raises(ValueError, match=r"dropout: rate must be in \[0, 1\), .*, not 1"):
        ops.dropout(X, 1, key=random.key(0))
    with pytest.raises(TypeError, match=r"dropout: key must be one key, .* got int 3; make one"):
        ops.dropout(X, 0.5, key=3)


# --- activations --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "at", "slope"),
    [
        (ops.relu6, 0.0, 0),
        (ops.relu6, 6.0, 0),
        (ops.hard_tanh, -1.0, 0),
        (ops.leaky_relu, 0.0, 0.01),
        (ops.elu, 0.0, 1),
        (ops.softsign, 0.0, 1),
    ],
)
def test_derivatives_at_kinks_are_as_stated(f, at, slope):
    assert fdbr.grad(f)(at) == slope


@pytest.mark.parametrize("name", ["softplus", "log_sigmoid", "silu", "gelu", "elu", "mish"])
def test_activations_and_their_derivatives_are_finite_far_out(name):
    f = getattr(ops, name)
    for x in (-1000.0, 1000.0):
        assert math.isfinite(f(x))
        assert math.isfinite(fdbr.grad(f)(x))


def test_gelu_of_float32_is_that_of_float64():
    x = np.concatenate([np.linspace(-15, 15, 5001), [0.0, -0.0, 1e-20, 50, -50, np.inf]])
    narrow = x.astype(np.float32)
    slope = fdbr.grad(lambda x: ops.gelu(x).sum())
    curve = fdbr.grad(lambda x: slope(x).sum())
    for f in (ops.gelu, slope, curve):
        finite = slice(None) if f is ops.gelu else slice(-1)
        found, desired = f(narrow[finite]), f(x[finite])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, desired, rtol=1e-5, atol=5e-7)


def test_glu_divides_even_axes_only():
    with pytest.raises(ValueError, match=r"glu: axis -1 of x float64\[2,3\] must be of even"):
        ops.glu(X)


def test_only_some_of_what_a_norm_is_given_may_be_batched():
    rng = np.random.default_rng(0)
    x, weight, bias = rng.normal(2, 3, (3, 4, 6, 5)), rng.normal(1, 1, (3, 6)), np.ones(6)

    def cotangents_in(x, weight, bias):
        out, pull = fdbr.vjp(lambda *xs: ops.group_norm(xs[0], 3, *xs[1:]), x, weight, bias)
        return pull(ops.cos(out))

    for axes in [(0, None, None), (None, 0, None), (0, 0, None), (0, None, 0)]:
        given = (
            x if axes[0] == 0 else x[0],
            weight if axes[1] == 0 else weight[0],
            weight if axes[2] == 0 else bias,
        )
        found = fdbr.vmap(cotangents_in, in_axes=axes)(*given)
        for i in range(3):
            one = [v[i] if axis == 0 else v for v, axis in zip(given, axes, strict=True)]
            for part, wanted in zip(found, cotangents_in(*one), strict=True):
                np.testing.assert_allclose(part[i], wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_eps_of_rms_norm_is_the_dtypes(dtype):
    x = np.full(4, 1e-6, dtype)
    eps = np.finfo(dtype).eps
    assert_allclose(ops.rms_norm(x), x / np.sqrt(x[0] ** 2 + eps), rtol=1e-6)
