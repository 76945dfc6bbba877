"""Convolutions: every geometry, their transposes, batches, memory, errors."""

import types

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.core.primitive import registry
from fdbr.ops.nn.convolution import im2col
from fdbr.testing import assert_allclose
from ops.cases_networks import correlated, spread


def numbers(seed, *shape):
    return np.random.Generator(np.random.Philox(seed)).integers(-8, 9, shape) / 4


@st.composite
def settings_of_conv(draw):
    """Shapes and settings of a convolution that fits, of at most three dimensions."""
    rank = draw(st.integers(1, 3))
    of_each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))
    kernel, stride, dilation = of_each(1, 3), of_each(1, 3), of_each(1, 2)
    padding = tuple(zip(of_each(0, 2), of_each(0, 2), strict=True))
    least = [
        max(1, d * (k - 1) + 1 - sum(p)) for d, k, p in zip(dilation, kernel, padding, strict=True)
    ]
    size = tuple(n + more for n, more in zip(least, of_each(0, 3), strict=True))
    groups = draw(st.integers(1, 2))
    outs, ins, batch = (
        groups * draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(0, 2)),
    )
    shapes = (batch, ins * groups, *size), (outs, ins, *kernel)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return shapes, params


@given(settings_of_conv())
@settings(max_examples=60)
def test_values_are_the_sums_that_define_them(setting):
    (of_x, of_w), params = setting
    x, w, b = numbers(1, *of_x), numbers(2, *of_w), numbers(3, of_w[0])
    assert_allclose(ops.conv(x, w, b, **params), correlated(x, w, b, **params))


@given(settings_of_conv())
@settings(max_examples=60)
def test_the_transpose_is_the_transpose(setting):
    """``<y, conv(x)> == <conv_transpose(y), x>``, and its values are the sums that define it."""
    (of_x, of_w), params = setting
    x, w = numbers(1, *of_x), numbers(2, *of_w)
    out = ops.conv(x, w, **params)
    y = numbers(3, *out.shape)
    extents = [d * (k - 1) + 1 for d, k in zip(params["dilation"], of_w[2:], strict=True)]
    more = tuple(
        (n + sum(p) - e) % s
        for n, p, e, s in zip(of_x[2:], params["padding"], extents, params["stride"], strict=True)
    )
    back = ops.conv_transpose(y, w, output_padding=more, **params)
    assert back.shape == x.shape
    assert_allclose((y * out).sum(), (back * x).sum(), rtol=1e-10, atol=1e-10)
    assert_allclose(back, spread(y, w, output_padding=more, **params))


def test_output_padding_may_be_as_long_as_strides_within_dilation():
    y, w = numbers(1, 1, 2, 3), numbers(2, 2, 1, 2)
    for stride, padding in ((1, 0), (2, 1)):
        longer = ops.conv_transpose(
            y, w, stride=stride, padding=padding, dilation=4, output_padding=3
        )
        whole = ops.conv_transpose(y, w, stride=stride, dilation=4)
        whole = np.pad(whole, ((0, 0), (0, 0), (0, 3)))
        assert_allclose(longer, whole[..., padding : whole.shape[-1] - padding])


@given(settings_of_conv(), st.sets(st.integers(0, 2), min_size=1))
@settings(max_examples=30)
def test_batches_of_any_operands_are_what_a_loop_gives(setting, batched):
    (of_x, of_w), params = setting
    shapes = of_x, of_w, of_w[:1]
    args = [numbers(i, *(2,) * (i in batched), *shape) for i, shape in enumerate(shapes)]
    axes = tuple(0 if i in batched else None for i in range(3))

    def derivatives(x, w, b):
        return fdbr.grad(lambda args: ops.sin(ops.conv(*args, **params)).sum())([x, w, b])

    each = [
        derivatives(*(a[k] if i in batched else a for i, a in enumerate(args))) for k in range(2)
    ]
    found = fdbr.vmap(derivatives, in_axes=axes)(*args)
    for i, gradient in enumerate(found):
        assert_allclose(gradient, np.stack([g[i] for g in each]), atol=1e-10)


def test_a_batch_takes_one_product_whatever_its_size(monkeypatch):
    calls = []
    primitive = registry["conv_kernel"]
    value = primitive.host
    monkeypatch.setattr(primitive, "host", lambda *a, **k: calls.append(a) or value(*a, **k))
    x, w = numbers(0, 50, 2, 6), numbers(1, 3, 2, 3)
    per_example = fdbr.vmap(fdbr.grad(lambda w, x: ops.conv(x, w).sum()), in_axes=(None, 0))(w, x)
    assert per_example.shape == (50, 3, 2, 3)
    assert len(calls) == 1


def test_complex_convolutions_are_transposed_without_conjugation():
    x, w = (numbers(i, 1, 2, 5) + 1j * numbers(i + 2, 1, 2, 5) for i in range(2))
    tangent, ct = numbers(5, 1, 2, 5) * (1 + 2j), numbers(6, 1, 1, 1) * (2 - 1j)
    f = lambda x: ops.conv(x, w[:1])
    _, forward = fdbr.jvp(f, (x,), (tangent,))
    _, pullback = fdbr.vjp(f, x)
    assert_allclose((ct * forward).sum(), (pullback(ct)[0] * tangent).sum())


# --- padding ------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
def test_same_padding_gives_as_many_windows_as_strides_fit(n, kernel, stride, dilation):
    params = {"stride": stride, "dilation": dilation, "padding": "same"}
    w = np.ones((1, 1, kernel))
    out = ops.conv(np.ones((1, 1, n)), w, **params)
    assert out.shape == (1, 1, -(-n // stride))
    assert ops.conv_transpose(out, w, **params).shape == (1, 1, -(-n // stride) * stride)


def test_valid_is_no_padding_and_one_number_is_for_all_axes():
    x, w = numbers(0, 1, 1, 4, 5), numbers(1, 1, 1, 2, 3)
    np.testing.assert_array_equal(ops.conv(x, w, padding="valid"), ops.conv(x, w))
    np.testing.assert_array_equal(
        ops.conv(x, w, padding=1), ops.conv(x, w, padding=((1, 1), (1, 1)))
    )


def test_a_single_example_has_no_batch_axis():
    x, w, b = numbers(0, 2, 5), numbers(1, 3, 2, 2), numbers(2, 3)
    np.testing.assert_array_equal(ops.conv(x, w, b), ops.conv(x[None], w, b)[0])
    y = numbers(3, 3, 4)
    np.testing.assert_array_equal(ops.conv_transpose(y, w), ops.conv_transpose(y[None], w)[0])


# --- memory, dtypes, modules --------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
def test_blocks_of_any_size_give_the_same(groups):
    x, w = numbers(0, 3, 4, 9, 5), numbers(1, 4, 4 // groups, 3, 2)
    geometry = im2col.Geometry((3, 2), (2, 1), ((1, 1), (1, 1)), (1, 1))
    y = numbers(2, 3, 4, *geometry.counts((9, 5)))

    def everything(size):
        return (
            im2col.correlate(np, x, w, None, geometry, groups, size),
            im2col.correlate_transposed(np, y, w, geometry, groups, (9, 5), size),
            im2col.correlate_kernel(np, x, y, geometry, groups, size),
        )

    for size in (1, 500, 3000):
        assert_allclose(everything(size), everything(1 << 28), rtol=1e-12, atol=1e-12)


def test_the_order_of_axes_in_memory_does_not_matter():
    x, w = numbers(0, 3, 2, 5, 4), numbers(1, 2, 2, 2, 2)
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(ops.conv(turned, w), ops.conv(x, w))
    np.testing.assert_array_equal(ops.conv(x[:, ::-1], w[:, ::-1]), ops.conv(x, w))


def test_dtypes_promote_and_gradients_keep_their_own():
    x, w = numbers(0, 1, 1, 4).astype("f4"), numbers(1, 1, 1, 2)
    assert ops.conv(x, x[:, :, :2]).dtype == np.float32
    assert ops.conv(x, w).dtype == np.float64
    assert ops.conv(x, x[:, :, :2], np.ones(1)).dtype == np.float64
    gradients = fdbr.grad(lambda x, w: ops.conv(x, w).sum(), argnums=(0, 1))(x, w)
    assert [g.dtype for g in gradients] == ["float32", "float64"]
    assert ops.conv(np.ones((1, 1, 3), int), np.ones((1, 1, 2), int)).dtype == np.int64


def test_a_module_without_strides_takes_its_windows_one_position_after_another():
    xp = types.SimpleNamespace(**{n: getattr(np, n) for n in dir(np) if n != "lib"})
    x, w = numbers(0, 2, 2, 5, 4), numbers(1, 3, 2, 3, 2)
    geometry = im2col.Geometry((3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2))
    mine = im2col.correlate(xp, x, w, None, geometry, 1)
    np.testing.assert_array_equal(mine, im2col.correlate(np, x, w, None, geometry, 1))


# --- errors -------------------------------------------------------------------------

X, W = np.zeros((2, 4, 8)), np.zeros((6, 4, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.conv(X, W[0]), r"conv: weight must have two axes of channels .* float64\[4,3"),
        (lambda: ops.conv(X[0, 0], W), r"conv: x must have a channel axis and 1 spatial .*\[8\]"),
        (
            lambda: ops.conv(X, W[:, :2]),
            r"\[2,4,8\] has 4 channels, but weight .* groups=1 is for 2",
        ),
        (lambda: ops.conv(X, W, groups=4), r"groups must be an integer that divides .* it is 4"),
        (lambda: ops.conv(X, W, groups=0), "groups must be an integer that divides .* it is 0"),
        (lambda: ops.conv(X, W, np.ones(4)), r"conv: bias float64\[4\] .* must have shape \(6,\)"),
        (
            lambda: ops.conv(X, W, stride=0),
            "conv: stride must be an integer of at least 1.* it is 0",
        ),
        (lambda: ops.conv(X, W, stride=(1, 2)), r"stride must be .* it is \(1, 2\)"),
        (lambda: ops.conv(X, W, dilation=1.5), r"dilation must be .* it is 1\.5"),
        (lambda: ops.conv(X, W, padding=-1), "padding must be an integer of at least 0.* it is -1"),
        (lambda: ops.conv(X, W, padding="full"), "padding 'full' is neither 'same' nor 'valid'"),
        (lambda: ops.conv(X, W, padding=((1, 2, 3),)), r"one pair \(before, after\) for each of 1"),
        (lambda: ops.conv(X, W, dilation=4), r"windows, \(9,\) long .* \(8,\) long with padding"),
        (lambda: ops.conv_transpose(X, W), r"conv_transpose: x .* 4 channels, .* is for 6"),
        (
            lambda: ops.conv_transpose(X, W[:4], stride=2, output_padding=2),
            r"output_padding \(2,\) must be less than stride \(2,\) or dilation \(1,\)",
        ),
        (
            lambda: ops.conv_transpose(X, W[:4], padding=5),
            r"padding \(\(5, 5\),\) leaves nothing of the result",
        ),
        (
            lambda: ops.conv_transpose(X, W[:4], stride=2, padding="same", output_padding=1),
            "padding='same' determines the lengths; output_padding must be 0, not 1",
        ),
        (lambda: ops.conv_transpose(X, W[:4], np.ones(5)), r"bias .* must have shape \(4,\)"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 4, ((0, 3), (2, 0))])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 3, 0)])
def test_the_derivative_by_the_input_is_the_transpose_however_the_input_lies(
    order, kernel, padding, dilation, groups
):
    generator = np.random.default_rng(0)
    shape = (3, 4, 5, 6)
    x = np.empty([shape[i] for i in order]).transpose(np.argsort(order))
    x[...] = generator.normal(size=shape)
    weight = generator.normal(size=(8, 4 // groups, *kernel))
    options = {"padding": padding, "dilation": dilation, "groups": groups}
    out, pullback = fdbr.vjp(lambda x, w: ops.conv(x, w, **options), x, weight)
    y = generator.normal(size=out.shape)
    of_x, of_weight = pullback(y)
    np.testing.assert_allclose((of_x * x).sum(), (out * y).sum())
    np.testing.assert_allclose((of_weight * weight).sum(), (out * y).sum())
    one = np.zeros(shape)
    one[1, 2, 3, 4] = 1
    np.testing.assert_allclose((ops.conv(one, weight, **options) * y).sum(), of_x[1, 2, 3, 4])
