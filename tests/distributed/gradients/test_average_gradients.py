"""`average_gradients`: what it makes of the ranks' gradients."""

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from distributed.gradients.models import assert_close
from hypothesis import given, settings

import fdbr
from fdbr import distributed as d
from fdbr import ops, tree
from fdbr.train import optim

DTYPES = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    np.complex64,
    np.complex128,
]


def averages(grads, weights=None, **options):
    """The averages that ranks with these gradients get."""

    def f(comm):
        transformation = d.average_gradients(comm, **options)
        mine = grads[comm.rank]
        weight = None if weights is None else weights[comm.rank]
        return transformation.update(mine, transformation.init(mine), weight=weight)[0]

    return d.run_in_threads(f, len(grads), timeout=10)


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (0,), (3,), (2, 0), (4, 5)])),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 200),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_leaves_of_any_dtypes_and_shapes_are_averaged(size, kinds, limit, weighted, seed):
    rng = np.random.default_rng(seed)

    def leaf(dtype, shape):
        array = rng.normal(size=(*shape, 2))[..., 0].astype(dtype)  # not contiguous
        return array if shape else array[()]

    grads = [[None, *(leaf(*kind) for kind in kinds), None] for _ in range(size)]
    weights = [*rng.integers(0, 4, size - 1), 2] if weighted else [1] * size
    found = averages(grads, weights if weighted else None, bucket_bytes=limit)
    for i, (dtype, shape) in enumerate(kinds, 1):
        wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
        mean = np.average([np.asarray(g[i]).astype(wide) for g in grads], 0, weights)
        for one in found:
            assert one[0] is None
            assert one[-1] is None
            assert one[i].dtype == dtype
            assert one[i].shape == shape
            tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)
            np.testing.assert_allclose(one[i].astype(wide), mean, tolerance, tolerance)


def test_averages_are_read_only_and_the_gradients_are_left_alone():
    grads = [{"w": np.full((3, 2), float(rank))} for rank in range(2)]
    found = averages(grads)
    assert not found[0]["w"].flags.writeable
    np.testing.assert_array_equal(grads[1]["w"], np.ones((3, 2)))


@pytest.mark.parametrize("weights", [(1, 3), (np.int64(1), np.float32(3.0)), (0.5, np.array(1.5))])
def test_weights_are_numbers_of_any_kind(weights):
    found = averages([np.array([4.0]), np.array([8.0])], weights)
    np.testing.assert_array_equal(found, [[7.0], [7.0]])


@pytest.mark.parametrize("double_buffering", [False, True])
def test_a_rank_without_examples_counts_nothing(double_buffering):
    grads = [np.array([np.nan]), np.array([8.0])]

    def f(comm):
        t = d.average_gradients(comm, double_buffering=double_buffering)
        state = t.init(np.zeros(1))
        updates = [t.update(grads[comm.rank], state, weight=comm.rank)]
        updates.append(t.update(grads[comm.rank], updates[-1][1], weight=comm.rank))
        return updates[-1][0]

    np.testing.assert_array_equal(d.run_in_threads(f, 2), [[8.0], [8.0]])


@pytest.mark.parametrize("jitted", [False, True])
def test_no_example_on_any_rank_is_an_error(jitted):
    def f(comm):
        t = d.average_gradients(comm)

        def step(g, weight):
            return t.update(g, t.init(g), weight=weight)[0]

        step = fdbr.jit(step) if jitted else step
        for weight in (1.0, 1.0, 0.0):
            step(np.ones(2), np.float64(weight))

    with pytest.raises(ValueError, match="the weights of all ranks are 0"):
        d.run_in_threads(f, 2, timeout=20)


@pytest.mark.parametrize("weight", ["many", True, np.ones(2), 1j, None.__class__])
def test_a_weight_that_is_no_number_is_an_error(weight):
    t = d.average_gradients(d.serial())
    with pytest.raises(TypeError, match=r"average_gradients: weight must be a number"):
        t.update(np.ones(2), t.init(np.ones(2)), weight=weight)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf])
def test_a_weight_that_is_negative_or_not_finite_is_an_error(weight):
    t = d.average_gradients(d.serial())
    with pytest.raises(ValueError, match=r"average_gradients: weight must be a finite number"):
        t.update(np.ones(2), t.init(np.ones(2)), weight=weight)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match=r"average_gradients: comm must be a communicator"):
        d.average_gradients(None)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match=r"average_gradients: bucket_bytes must"):
            d.average_gradients(d.serial(), bucket_bytes=wrong)
    with pytest.raises(ValueError, match=r"average_gradients: wire must be"):
        d.average_gradients(d.serial(), wire="int8")
    with pytest.raises(ValueError, match=r"the state must be DoubleBufferingState"):
        d.average_gradients(d.serial(), double_buffering=True).update(1.0, ())


def test_ranks_whose_gradients_differ_in_shape_are_told():
    with pytest.raises(d.MismatchError, match=r"rank 1: all_reduce\(op='mean'\) of float64\[3\]"):
        averages([np.ones(2), np.ones(3)])


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_gradients_may_travel_in_16_bits(wire):
    rng = np.random.default_rng(0)
    grads = [{"w": rng.normal(size=9).astype(np.float32)} for _ in range(3)]
    found = averages(grads, wire=wire)
    mean = np.mean([g["w"] for g in grads], 0)
    assert found[0]["w"].dtype == np.float32
    np.testing.assert_allclose(found[0]["w"], mean, 2e-2, 2e-2)
    assert (found[0]["w"] != mean.astype(np.float32)).any()


def test_one_differentiates_through_an_update():
    xs = [np.array([1.0, 2.0]), np.array([3.0, -1.0])]

    def through(w, average, xs):
        """The sum over ranks of a loss after one step, as the ranks share it."""

        def inner(w, x):
            return ops.sum(ops.sin(w * x))

        grads = average([fdbr.grad(inner)(w, x) for x in xs])
        return sum(ops.sum((w - 0.1 * grads) ** 3 * x) for x in xs)

    w = np.array([0.3, 0.7])
    whole = fdbr.grad(lambda w: through(w, lambda gs: (gs[0] + 3 * gs[1]) / 4, xs))(w)

    def f(comm):
        t = d.average_gradients(comm)
        weight = (1.0, 3.0)[comm.rank]
        mine = lambda gs: t.update(gs[0], t.init(w), w, weight=weight)[0]
        return fdbr.grad(lambda w: through(w, mine, [xs[comm.rank]]))(w)

    np.testing.assert_allclose(sum(d.run_in_threads(f, 2)), whole, 1e-12)


def test_double_buffering_gives_the_average_of_the_step_before():
    def f(comm):
        t = optim.chain(d.average_gradients(comm, double_buffering=True), optim.identity())
        params = {"w": np.zeros(2), "b": np.float32(0), "n": 3}
        state = t.init(params)
        found = []
        for step in range(3):
            g = float(step + 2 * comm.rank)
            grads = {"w": np.full(2, g), "b": np.float32(g), "n": None}
            updates, state = t.update(grads, state, params)
            found.append(updates)
        return found, tree.leaves(state)

    for found, left in d.run_in_threads(f, 2):
        assert [float(u["b"]) for u in found] == [0.0, 1.0, 2.0]
        assert [u["w"][0] for u in found] == [0.0, 1.0, 2.0]
        assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in left)
        assert float(left[0]) == 3.0


def test_a_state_with_double_buffering_is_saved_and_loaded(tmp_path):
    from fdbr import train

    def f(comm):
        t = d.average_gradients(comm, double_buffering=True)
        state = t.init(np.zeros(2))
        _, state = t.update(np.ones(2) + comm.rank, state)
        file = tmp_path / f"{comm.rank}.safetensors"
        train.save(file, state)
        again = train.load(file, like=t.init(np.zeros(2)))
        return t.update(np.zeros(2), again)[0]

    np.testing.assert_array_equal(d.run_in_threads(f, 2), np.full((2, 2), 1.5))


def test_double_buffering_in_a_jitted_step_gives_the_same():
    def f(comm, jitted):
        optimizer = optim.chain(d.average_gradients(comm, double_buffering=True), optim.adam(0.1))

        def step(params, state, x):
            grads = fdbr.grad(lambda p: ops.sum(p["w"] * x) ** 2)(params)
            updates, state = optimizer.update(grads, state, params, weight=1 + comm.rank)
            return optim.apply_updates(params, updates), state

        step = fdbr.jit(step) if jitted else step
        params = {"w": np.ones(3)}
        state = optimizer.init(params)
        for n in range(5):
            params, state = step(params, state, np.arange(3.0) + n + comm.rank)
        return params

    eager = d.run_in_threads(lambda comm: f(comm, False), 2)
    # One rank may run a program while the other one calls the function.
    mixed = d.run_in_threads(lambda comm: f(comm, comm.rank == 1), 2)
    for found in (eager[1], *mixed):
        assert_close(found, eager[0], 1e-9)


def test_weights_go_through_a_step_that_gives_the_same_bits_always():
    def f(comm):
        optimizer = optim.chain(d.average_gradients(comm), optim.sgd(0.5))

        @fdbr.jit
        def step(w, x):
            grads = fdbr.grad(lambda w: ops.mean(w * x))(w)
            updates, _ = optimizer.update(grads, optimizer.init(w), w, weight=len(x))
            return optim.apply_updates(w, updates)

        x = [np.array([1.0]), np.array([2.0, 3.0])][comm.rank]
        return [step(np.array(1.0), x).item() for _ in range(2)]

    np.testing.assert_allclose(d.run_in_threads(f, 2), np.zeros((2, 2)), atol=1e-12)
