"""Writing to places that index arrays name: the same on every array module, for every dtype."""

import numpy as np
import pytest
import shadow
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from ops.cases import few

DTYPES = "? b B h H i I q Q e f d F D".split()


@st.composite
def written(draw):
    """An array, places in it by two index arrays, and values for them; with NaN among them."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rows, columns, count = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 6))
    pick = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = [-2.0, -1.0, 0.0, 1.0, 1.0 + 1e-12, 2.0]
    if dtype.kind in "fc":
        levels += [np.nan, np.inf, -np.inf]
    levels = np.array([level for level in levels if dtype.kind not in "uB" or level >= 0])

    def numbers(shape):
        found = pick.choice(levels, shape)
        if dtype.kind == "c":
            found = found + 1j * pick.choice(levels[np.isfinite(levels)], shape)
        return found.astype(dtype)

    i, j = pick.integers(-rows, rows, count), pick.integers(-columns, columns, count)
    return numbers((rows, columns)), i, j, numbers(count)


@given(written())
def test_values_for_one_place_are_added_up_in_every_dtype(xp, to_numpy, drawn):
    x, i, j, values = drawn
    sums = np.zeros_like(x)
    with np.errstate(invalid="ignore"):
        mine = ops.at(xp.asarray(x))[xp.asarray(i), xp.asarray(j)].add(xp.asarray(values))
        np.add.at(sums, (i, j), values)
        expected = x + sums
    assert mine.dtype == x.dtype
    assert_allclose(to_numpy(mine), expected)


@given(written())
def test_the_last_value_for_one_place_stays_in_every_dtype(xp, to_numpy, drawn):
    x, i, j, values = drawn
    expected = x.copy()
    for place in range(len(i)):
        expected[i[place], j[place]] = values[place]
    mine = ops.at(xp.asarray(x))[xp.asarray(i), xp.asarray(j)].set(xp.asarray(values))
    assert_allclose(to_numpy(mine), expected)


@given(written(), st.sampled_from(["amax", "amin"]), st.booleans())
def test_extremes_of_the_values_for_one_place_are_numpys(xp, to_numpy, drawn, reduce, own):
    x, i, _, values = drawn
    x = x[:, 0]
    meet = np.maximum if reduce == "amax" else np.minimum
    expected = x.copy()
    for place in sorted(set(i.tolist())):
        given = [
            value for at, value in zip(i, values, strict=True) if at % len(x) == place % len(x)
        ]
        parts = [x[place], *given] if own else given
        expected[place] = meet.reduce(np.array(parts, x.dtype))
    mine = ops.scatter(
        xp.asarray(x), 0, xp.asarray(i), xp.asarray(values), reduce=reduce, include_self=own
    )
    assert mine.dtype == x.dtype
    mine, broken = to_numpy(mine), np.isnan(expected)
    assert_allclose(np.isnan(mine), broken)  # of complex numbers, whichever part it is
    assert_allclose(mine[~broken], expected[~broken], rtol=0, atol=0)


@few()
@given(written())
def test_value_and_gradient_agree_on_who_stays(xp, to_numpy, drawn):
    x, i, j, values = drawn
    x, values = np.arange(x.size, dtype=float).reshape(x.shape), 10.0 + np.arange(len(i))
    key = xp.asarray(i), xp.asarray(j)

    def chosen(values):
        return ops.at(xp.asarray(x))[key].set(values)

    out, pullback = fdbr.vjp(chosen, xp.asarray(values))
    (gradient,) = pullback(out * 0 + 1)
    stays = [10.0 + place for place in range(len(i)) if (to_numpy(out) == 10.0 + place).any()]
    assert stays == [v for v, g in zip(values, to_numpy(gradient), strict=True) if g]
    batch = fdbr.vmap(chosen)(xp.asarray(np.stack([values, -values])))
    assert_allclose(to_numpy(batch[0]), to_numpy(out))
    assert_allclose(to_numpy(fdbr.jit(chosen)(xp.asarray(values))), to_numpy(out))


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16"])
def test_gradients_of_gathered_elements_in_every_inexact_dtype(xp, to_numpy, dtype):
    x = np.arange(4).astype(dtype)
    places = xp.asarray(np.array([3, 1, 3]))

    def f(x):
        return abs(x[places] ** 2).sum()

    assert_allclose(
        to_numpy(fdbr.grad(f)(xp.asarray(x))),
        fdbr.grad(lambda x: abs(x[np.array([3, 1, 3])] ** 2).sum())(x),
    )


# --- places that there are not, and places that lie elsewhere --------------------------------

READING = {
    "x[i]": lambda x, i: ops.getitem(x, i),
    "take": lambda x, i: ops.take(x, i, axis=0),
    "take_along_axis": lambda x, i: ops.take_along_axis(x, i[:, None], axis=0),
    "gather": lambda x, i: ops.gather(x, 0, i[:, None]),
    "at set": lambda x, i: ops.at(x)[i].set(1.0),
    "at add": lambda x, i: ops.at(x)[i].add(1.0),
    "scatter": lambda x, i: ops.scatter(x, 0, i[:, None], 1.0),
    "scatter amax": lambda x, i: ops.scatter(x, 0, i[:, None], 1.0, reduce="amax"),
    "embed": lambda x, i: ops.embed(x, i),
    "cross entropy": lambda x, i: ops.softmax_cross_entropy(x[0][None], i[:1]),
}


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("places", [[3, 0], [-4, 0], [2**40, 0]])
def test_a_place_out_of_range_is_an_error_on_every_array_module(xp, name, places):
    x, i = xp.asarray(np.arange(9.0).reshape(3, 3)), xp.asarray(np.array(places))
    for function in (READING[name], lambda x, i: fdbr.vjp(lambda x: READING[name](x, i), x)):
        with pytest.raises((IndexError, ValueError), match=r"fdbr|bounds"):
            function(x, i)
    with pytest.raises((IndexError, ValueError), match=r"fdbr|bounds"):
        fdbr.vmap(lambda i: READING[name](x, i))(i[None])


@pytest.mark.parametrize("name", READING)
def test_places_in_host_memory_belong_to_arrays_anywhere(xp, to_numpy, name):
    host, i = np.arange(9.0).reshape(3, 3), np.array([2, 0])
    x = xp.asarray(host)
    assert_allclose(to_numpy(READING[name](x, i)), READING[name](host, i))

    def slope(x):
        return fdbr.grad(lambda x: (READING[name](x, i) ** 2).sum())(x)

    assert_allclose(to_numpy(slope(x)), slope(host))
    mask = np.array([True, False, True])
    kept = slope(host) * 0 + mask[:, None]
    assert_allclose(to_numpy(fdbr.grad(lambda x: x[mask].sum())(x)), kept)


@pytest.mark.parametrize("name", READING)
def test_the_host_waits_once_where_places_are_read_and_not_for_the_derivative(name):
    x, i = shadow.asarray(np.arange(9.0).reshape(3, 3)), np.array([2, 0])
    with shadow.counting() as tally:
        out, pullback = fdbr.vjp(lambda x: READING[name](x, shadow.asarray(i)), x)
    assert tally.waits == 1
    with shadow.counting() as tally:
        pullback(out * 0 + 1)
    assert tally.waits == 0
    with pytest.MonkeyPatch.context() as patch, shadow.counting() as tally:
        patch.setattr(fdbr.core.devices, "accelerator", lambda: shadow.module)
        fdbr.vjp(lambda x: READING[name](x, i), x)  # what comes from the host is known there
    assert tally.waits == 0


@pytest.mark.parametrize("ignored", [None, 2])
def test_labels_come_from_the_host_and_the_loss_stays_on_the_device(xp, to_numpy, ignored):
    logits = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], dtype=np.float32)
    labels = np.array([2, 0])

    def loss(x, labels):
        return ops.softmax_cross_entropy(x, labels, ignore_label=ignored)

    expected, slope = fdbr.value_and_grad(loss)(logits, labels)
    for integers in (labels, xp.asarray(labels)):
        value, gradient = fdbr.value_and_grad(loss)(xp.asarray(logits), integers)
        assert value.dtype == gradient.dtype == np.float32
        assert_allclose(to_numpy(value), expected)
        assert_allclose(to_numpy(gradient), slope)
        right = ops.accuracy(xp.asarray(logits), integers, ignore_label=ignored)
        assert_allclose(to_numpy(right), ops.accuracy(logits, labels, ignore_label=ignored))


def test_segments_in_host_memory_and_labels_under_jit_and_vmap(xp, to_numpy):
    host, ids = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    x = xp.asarray(host)
    assert_allclose(to_numpy(ops.segment_sum(x, ids, 2)), ops.segment_sum(host, ids, 2))

    def loss(x, labels):
        return ops.softmax_cross_entropy(x, labels, reduction="sum")

    labels = np.array([1, 0, 1])
    expected = fdbr.grad(loss)(host, labels)
    for transformed in (fdbr.jit(fdbr.grad(loss)), fdbr.vmap(fdbr.grad(loss))):
        for _ in range(3):
            assert_allclose(to_numpy(transformed(x, labels)), expected)
