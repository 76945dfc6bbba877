"""Every rank takes part in every collective, forward and on the way back."""

import weakref

import ml_dtypes
import numpy as np
import pytest
import shadow

import fdbr
from fdbr import distributed as d
from fdbr import ops
from fdbr.core import effects
from fdbr.distributed import primitives


def ranks(f, size=2):
    return d.run_in_threads(f, size, timeout=10)


@pytest.fixture
def exchanged(monkeypatch):
    """The calls of all ranks, in the order in which each made them."""
    calls = {}

    def noted(call, comm, arrays):
        calls.setdefault(comm.rank, []).append(str(call))
        return exchange(call, comm, arrays)

    exchange = primitives.exchange
    monkeypatch.setattr(primitives, "exchange", noted)
    return calls


def test_what_nobody_used_is_transposed_all_the_same():
    def f(comm):
        def loss(x):
            y = d.all_gather(x, comm)
            d.all_reduce(x * 3, comm)
            return ops.sum(y**2) if comm.rank == 0 else 0.0

        return fdbr.grad(loss)(np.array([1.0, 2.0]) + comm.rank)

    first, second = ranks(f)
    np.testing.assert_array_equal(first, [2.0, 4.0])
    np.testing.assert_array_equal(second, [4.0, 6.0])


def test_a_rank_without_parameters_sends_cotangents_back():
    def f(comm):
        def loss(w):
            if comm.rank == 0:
                d.send({"h": w**2, "n": 3}, comm, to=1)
                return 0.0
            got = d.receive({"h": np.zeros(2), "n": 0}, comm, source=0)
            return ops.sum(got["h"]) * got["n"]

        return fdbr.grad(loss)(np.array([1.0, 2.0]))

    first, second = ranks(f)
    np.testing.assert_array_equal(first, [6.0, 12.0])
    np.testing.assert_array_equal(second, [0.0, 0.0])


def test_operands_that_are_constants_on_one_rank_alone_do_no_harm():
    def f(comm):
        def loss(x):
            y = x if comm.rank == 0 else fdbr.stop_gradient(x)
            return ops.sum(d.all_reduce(y, comm) ** 2)

        return fdbr.grad(loss)(np.array([1.0])), fdbr.hvp(loss, (np.array([1.0]),), (np.ones(1),))

    (g, h), (zero, none) = ranks(f)
    assert (g, h, zero, none) == (8.0, 4.0, 0.0, 0.0)


def test_integers_go_along_and_have_no_derivative(exchanged):
    def f(comm):
        def loss(x):
            tree = d.all_reduce({"x": x, "n": 2, "k": np.arange(2), "none": None}, comm)
            count = d.all_reduce(np.array(comm.rank), comm)
            return ops.sum(tree["x"]) * tree["n"] * count * tree["k"][1]

        return fdbr.grad(loss)(np.array([1.0]))

    assert [float(g[0]) for g in ranks(f)] == [16.0, 16.0]
    assert exchanged[0] == exchanged[1] == ["all_reduce(op='sum')"] * 3


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16]
)
def test_derivatives_have_the_dtypes_of_what_was_given(dtype):
    def f(comm):
        x = np.asarray([1, 2], dtype)
        out, back = fdbr.vjp(lambda x: d.all_reduce(x, comm, "mean"), x)
        return out, back(np.asarray([2, 4], dtype))[0], back(np.asarray([4, 0], dtype))[0]

    for out, one, other in ranks(f):
        assert out.dtype == one.dtype == dtype
        np.testing.assert_array_equal(one, np.asarray([2, 4], dtype))
        np.testing.assert_array_equal(other, np.asarray([4, 0], dtype))


def test_wires_round_cotangents_too():
    def f(comm):
        _, back = fdbr.vjp(lambda x: d.all_reduce(x, comm, wire="float16"), np.array([1.0]))
        return back(np.array([1 + 2.0**-14]))[0]

    assert [one.tolist() for one in ranks(f)] == [[2.0], [2.0]]


def test_python_numbers_and_arrays_that_somebody_writes_to_are_taken_as_they_are_now():
    def f(comm):
        x = np.arange(6.0).reshape(2, 3).T
        _, back = fdbr.vjp(lambda x, a: d.all_reduce((x, a), comm, "max"), x, 2.0)
        x[:] = 7
        return back((np.ones((3, 2)), 1.0))

    for derivatives, number in ranks(f):
        np.testing.assert_array_equal(derivatives, np.ones((3, 2)))  # half of what both ranks say
        assert number == 1.0


def test_the_tape_goes_as_the_backward_pass_goes_on():
    def f(comm):
        alive, seen = [], []

        @fdbr.custom_vjp
        def watched(x):
            return x

        def bwd(_, ct):
            alive.append(seen[0]() is not None)
            return (ct,)

        watched.defvjp(lambda x: (x, None), bwd)

        def loss(x):
            y = watched(d.all_reduce(x, comm))
            large = np.ones(1000)
            large.setflags(write=False)  # so that the tape keeps it, and no copy
            seen.append(weakref.ref(large))
            return ops.sum(d.all_reduce(y * large, comm))

        fdbr.grad(loss)(np.ones(1000))
        return alive

    assert ranks(f) == [[False], [False]]


def test_a_checkpoint_communicates_once_and_its_transposes_keep_their_places(exchanged):
    def f(comm):
        block = fdbr.checkpoint(lambda x: ops.sin(d.all_gather(ops.sin(x), comm)))

        def loss(x):
            y = block(x)  # nobody uses it on one of the ranks
            z = d.all_reduce(x, comm)
            return ops.sum(z * (y if comm.rank else 1.0))

        return fdbr.grad(loss)(np.array([1.0]))

    first, second = ranks(f)
    expected = ["all_gather()", "all_reduce(op='sum')", "all_reduce(op='sum')"]
    assert exchanged[0] == exchanged[1] == [*expected, "reduce_scatter(op='sum')"]
    x = np.array([[1.0], [1.0]])

    def whole(x):
        return sum(
            ops.sum(ops.sum(x, axis=0) * (ops.sin(ops.sin(x)) if i else 1.0)) for i in range(2)
        )

    np.testing.assert_allclose([first, second], fdbr.grad(whole)(x))


def test_rules_of_users_that_communicate_are_applied_on_all_ranks():
    def f(comm):
        @fdbr.custom_vjp
        def total(x):
            return d.all_reduce(x, comm)

        total.defvjp(
            lambda x: (d.all_reduce(x, comm), None), lambda _, ct: (d.all_reduce(ct, comm) * 10,)
        )

        def loss(x):
            y = fdbr.checkpoint(lambda x: total(ops.sin(x)))(x)
            return ops.sum(y) if comm.rank else 0.0

        return fdbr.grad(loss)(np.array([1.0]))

    np.testing.assert_allclose(ranks(f), [[10 * np.cos(1.0)]] * 2)


def test_loops_communicate_at_each_iteration():
    def f(comm):
        def loss(x):
            def iteration(c, row):
                c = d.all_reduce(c * row, comm, "mean")
                return c, d.all_gather(c, comm)

            c, ys = fdbr.scan(iteration, x, np.array([1.0, 2.0, 3.0]), checkpoint=2)
            c = fdbr.fori_loop(0, 2, lambda i, c: d.all_reduce(c, comm) * (i + 1), c)
            c = fdbr.while_loop(lambda c: c < 1e4, lambda c: d.all_reduce(c, comm), c)
            return c + ops.sum(ys)

        return fdbr.value_and_grad(loss)(1.0 + comm.rank)

    def alone(x):
        c, ys = x, 0.0
        for row in (1.0, 2.0, 3.0):
            c = c * row
            ys += 2 * c
        c = c * 2 * 2 * 2
        while c < 1e4:
            c = 2 * c
        return c + ys

    value, slope = fdbr.value_and_grad(alone)(1.5)
    for found, own in ranks(f):
        assert np.isclose(found, value)
        assert np.isclose(own, slope)  # of each of two ranks half, of two losses


def test_a_batch_that_is_divided_around_a_collective_is_refused():
    def f(comm):
        def one(x):
            y = d.all_reduce(x, comm)
            return y if y > 0 else -y

        with pytest.raises(RuntimeError, match=r"all_reduce: the examples of a batch .* ops.where"):
            fdbr.vmap(one)(np.array([1.0, -1.0]))

        def other(x):
            return d.all_reduce(x if x > 0 else -x, comm)

        with pytest.raises(RuntimeError, match="once, for the whole batch"):
            fdbr.vmap(other)(np.array([1.0, -1.0]))
        return fdbr.vmap(one)(np.array([1.0, 2.0])).tolist()

    assert ranks(f) == [[2.0, 4.0]] * 2


def test_a_run_without_effects_gives_zeros_and_asks_nobody(exchanged):
    def f(comm):
        with effects.without_effects():
            x = np.ones((2, 3), np.float32)
            found = (
                d.all_gather(x, comm), d.gather(x, comm), d.reduce_scatter(x, comm),
                d.scatter(x, comm), d.broadcast(x, comm), d.receive(x, comm, source=0),
                fdbr.grad(lambda x: ops.sum(d.all_reduce(x, comm)))(x),
            )  # fmt: skip
            if comm.rank:
                with pytest.raises(RuntimeError, match="in the form of the root's"):
                    d.scatter(None, comm)
            return [
                None if out is None else (out.shape, out.dtype.name, out.any()) for out in found
            ]

    first, second = ranks(f)
    kind = "float32", False
    shapes = [(2, 2, 3), (2, 2, 3), (1, 3), (1, 3), (2, 3), (2, 3), (2, 3)]
    assert [None if one is None else one[0] for one in first] == shapes
    assert second[1] is None
    assert all(one[1:] == kind for one in first)
    assert not exchanged


def test_ranks_that_call_different_collectives_on_the_way_back_are_told_where():
    def f(comm):
        def loss(x):
            if comm.rank:
                return ops.sum(d.all_gather(x, comm))
            return ops.sum(d.all_reduce(x, comm))

        return fdbr.grad(loss)(np.ones(2))

    with pytest.raises(d.MismatchError, match=r"test_taking_part\.py"):
        ranks(f)

    def back(comm):
        _, pullback = fdbr.vjp(lambda x: d.all_gather(x, comm), np.ones(2))
        return pullback(np.ones((2, 2))) if comm.rank else d.all_reduce(np.ones(2), comm)

    with pytest.raises(d.MismatchError, match=r"reduce_scatter.*py:\d+, on the way back"):
        ranks(back)


def test_arrays_of_another_module_keep_it():
    def f(comm):
        x = shadow.asarray(np.arange(2.0) + comm.rank)

        def loss(x):
            return ops.sum(d.all_gather(x, comm) ** 2 * d.all_reduce(x, comm, "max"))

        return fdbr.grad(loss)(x), fdbr.jit(fdbr.grad(loss))(x), fdbr.vmap(fdbr.grad(loss))(x[None])

    for found in ranks(f, 1):
        for one in found:
            assert type(one) is type(shadow.asarray(0.0))
            np.testing.assert_allclose(shadow.to_numpy(one).reshape(2), [0.0, 3.0])
