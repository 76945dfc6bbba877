"""What the caller gives up is written over, and nothing that anybody can still see."""

import copy
import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from compiler.comparing import assert_same
from compiler.recorded import functions, normal, treat_as_large
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, train, tree
from fdbr.backends.cpu.exec.memory import workspaces
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.engine import donation, tiers


@fdbr.frozen
class Weights:
    w: object
    b: object


def weights(size=64, dtype=np.float32):
    return Weights(normal(size, size, dtype=dtype) / 8, normal(size, dtype=dtype))


def loss(weights, x):
    return ((ops.tanh(x @ weights.w + weights.b) - 1) ** 2).mean()


def step(weights, x):
    value, slope = fdbr.value_and_grad(loss)(weights, x)
    return tree.map(lambda p, g: p - 0.1 * g, weights, slope), value


def owned(values):
    """A copy of a tree to whose arrays nobody else refers."""
    return tree.map(copy.copy, values)


def addresses(values):
    return [leaf.ctypes.data for leaf in tree.leaves(values) if type(leaf) is np.ndarray]


def warm(f, *args, donate=0):
    """The function, jitted, after the calls that record and replay for the first time."""
    jitted = fdbr.jit(f, donate_argnums=donate)
    for _ in range(3):
        jitted(*owned(args))
    return jitted


X = normal(32, 64, seed=1)


# --- what is written over -----------------------------------------------------------


def test_new_parameters_lie_where_the_old_ones_were():
    jitted = warm(step, weights(), X)
    state = owned(weights())
    before = addresses(state)[0]
    state, _ = jitted(state, X)
    assert addresses(state)[0] == before
    assert "over v0" in str(jitted.programs()[0])


@pytest.mark.parametrize(
    "optimizer", [train.optim.sgd(0.1), train.optim.momentum_sgd(0.1), train.optim.adam(0.01)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_run_of_an_optimizer_gives_what_it_gives_without(optimizer, dtype):
    def step(state, x):
        params, memory = state
        value, slope = fdbr.value_and_grad(loss)(params, x)
        updates, memory = optimizer.update(slope, memory, params)
        return (train.optim.apply_updates(params, updates), memory), value

    params = weights(dtype=dtype)
    state = params, optimizer.init(params)
    plain, donating = fdbr.jit(step), fdbr.jit(step, donate_argnums=0)
    ours, theirs = owned(state), state
    places = []
    for _ in range(6):
        ours, value = donating(ours, X.astype(dtype))
        theirs, desired = plain(theirs, X.astype(dtype))
        assert_same((ours, value), (theirs, desired), ulps=0)
        places.append([a for a in addresses(ours) if a])
    large = sum(leaf.nbytes >= 4096 for leaf in tree.leaves(ours) if hasattr(leaf, "nbytes"))
    assert len(set(places[-1]).intersection(*map(set, places[3:]))) >= large


@pytest.mark.parametrize("locked", [True, False])
def test_a_gradient_that_is_the_new_state_is_copied_over_the_old_state(locked):
    def moved(state, slope):
        return {"w": state["w"] - 0.5 * slope - 0.5 * state["previous"], "previous": slope}

    derivatives = [normal(64, 64, seed=seed) for seed in range(6)]
    kept = [slope.copy() for slope in derivatives]
    for slope in derivatives:
        slope.setflags(write=not locked)
    make = lambda: {"w": normal(64, 64, seed=9), "previous": normal(64, 64, seed=8)}
    jitted = warm(moved, make(), derivatives[0])
    ours, theirs = make(), make()
    places = addresses(ours)
    for slope in derivatives:
        ours, theirs = jitted(ours, slope), moved(theirs, slope)
        assert_same(ours, theirs)
        assert not np.shares_memory(ours["previous"], slope)
    assert_same(derivatives, kept)
    assert sorted(addresses(ours)) == sorted(places)


@pytest.mark.parametrize("kind", [dict, list])
def test_dicts_and_lists_are_donated_too(kind):
    def f(values):
        return tree.map(lambda v: v * 2 + 1, values)

    make = lambda: {"{w}": normal(64, 64)} if kind is dict else [normal(64, 64)]
    jitted = warm(f, make())
    old = make()
    (place,) = addresses(old)
    new = jitted(old)
    assert addresses(new) == [place]
    assert_same(new, f(make()))
    assert addresses(old) == []


def test_kernels_on_several_threads_write_over_their_rows():
    f = lambda values: {"w": values["w"] * 2 - 1}
    jitted = warm(f, {"w": normal(1000, 1000)})
    values = {"w": normal(1000, 1000)}
    (place,) = addresses(values)
    values = jitted(values)
    assert addresses(values) == [place]
    assert np.array_equal(values["w"], f({"w": normal(1000, 1000)})["w"])


# --- what is not --------------------------------------------------------------------


@pytest.mark.parametrize("seen", [lambda w: w, lambda w: w[3:5], lambda w: memoryview(w)])
def test_what_another_reference_sees_stays_as_it_is(seen):
    jitted = warm(step, weights(), X)
    state = owned(weights())
    held = seen(state.w)
    kept = np.array(held)
    new, _ = jitted(state, X)
    assert np.array_equal(held, kept)
    assert_same(new, step(weights(), X)[0])


def test_a_view_is_not_written_over():
    jitted = warm(step, weights(), X)
    both = normal(2, 64, 64) / 8
    kept = both.copy()
    jitted(Weights(both[0], normal(64)), X)
    assert np.array_equal(both, kept)


def test_arguments_themselves_and_items_of_tuples_stay():
    f = lambda w, pair: (w * 2, (pair[0] + 1, pair[1] - 1))
    jitted = warm(f, normal(64, 64), (normal(64, 64), normal(64, 64)), donate=(0, 1))
    w, pair = normal(64, 64), (normal(64, 64), normal(64, 64))
    assert_same(jitted(w, pair), f(w, pair))
    assert np.array_equal(w, normal(64, 64))
    assert all(np.array_equal(v, normal(64, 64)) for v in pair)


def test_an_array_that_is_there_twice_counts_as_seen():
    f = lambda s: {"a": s["a"] + 1, "b": s["b"] * 2}
    jitted = warm(f, {"a": normal(64, 64), "b": normal(64, 64, seed=1)})
    w = normal(64, 64)
    assert_same(jitted({"a": w, "b": w}), f({"a": normal(64, 64), "b": normal(64, 64)}))


def test_other_arguments_are_not_donated():
    jitted = warm(lambda a, b: {"a": a["a"] + b["a"]}, *[{"a": normal(64, 64)}] * 2)
    w = normal(64, 64)
    jitted({"a": w}, {"a": w})
    assert np.array_equal(w, normal(64, 64))


@pytest.mark.parametrize(
    "f",
    [
        lambda s: ({"w": s["w"] * 2}, s["w"]),
        lambda s: ({"w": s["w"] * 2}, s["w"].T),
        lambda s: ({"w": s["w"] * 2}, s["w"][2:4]),
        lambda s: ({"w": s["w"] * 2 + s["w"].T},),
        lambda s: ({"w": s["w"] * 2 + ops.reshape(s["w"].T, (64, 64))},),
        lambda s: ({"w": s["w"] * 2, "v": ops.exp(s["w"])}, s["w"] @ s["w"]),
        lambda s: ({"w": s["w"] * 2}, ops.exp(s["w"]).sum(axis=0), s["w"].max()),
        lambda s: ({"w": s["v"] * 2, "v": s["w"] * 3}, s["v"].sum()),
        lambda s: ({"w": s["v"], "v": s["w"]}, s["v"].sum()),
        lambda s: ({"w": s["v"] + s["w"][::-1], "v": s["w"] + s["v"][::-1]},),
    ],
)
def test_what_is_still_needed_is_read_before(f):
    make = lambda: {"w": normal(64, 64), "v": normal(64, 64, seed=1)}
    jitted = warm(f, make())
    for _ in range(2):
        assert_same(jitted(make()), f(make()), ulps=16)


FOLDS = st.tuples(st.sampled_from(["max", "min", "sum", "mean"]), st.sampled_from([0, 1, None]))


@settings(max_examples=25)
@given(st.lists(FOLDS, min_size=1, max_size=3), st.booleans(), st.booleans(), st.integers(1, 3))
def test_kernels_that_fold_write_over_what_they_read_if_they_have_read_all(
    folds, goes_on, parted, times
):
    def f(s, g):
        y = s["w"] * 0.9 + g * g
        found = [getattr(ops, how)(y, axis=axis) for how, axis in folds]
        new = {"w": ops.sqrt(y * y + times)}
        if goes_on:  # a row is read again when its mean is known
            found.append(s["w"] * g - ops.mean(y, axis=1, keepdims=True))
        return new, found

    make = lambda: ({"w": normal(300, 64)}, normal(300, 64, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        if parted:  # between two threads, however little there is to do
            patch.setattr(TUNING, "program_thread", 0)
        jitted = warm(f, *make())
        state, g = make()
        before = addresses(state)
        state, found = jitted(state, g)
        assert_same((state, found), f(*make()), ulps=64)
        assert goes_on or addresses(state) == before


# --- decisions and failures ---------------------------------------------------------


def test_a_decision_that_iterations_out_otherwise_finds_the_arguments_as_they_were():
    def f(s, x):
        new = {"w": s["w"] * 2 - x}
        return (new, 1) if new["w"].sum() > 0 else ({"w": s["w"] - x}, 2)

    jitted = warm(f, {"w": normal(64, 64)}, np.float32(-1))
    for x in (-1, 1, -1, 1, 1, -1):
        s = {"w": normal(64, 64)}
        assert_same(jitted(s, np.float32(x)), f({"w": normal(64, 64)}, np.float32(x)))
    assert len(jitted.programs()) == 2


def test_after_a_call_that_fails_the_arguments_are_as_they_were():
    def f(s, labels):
        value, slope = fdbr.value_and_grad(
            lambda w: ops.softmax_cross_entropy(w @ w, labels).sum()
        )(s["w"])
        return {"w": s["w"] - slope}, value

    labels = np.arange(64)
    jitted = warm(f, {"w": normal(64, 64)}, labels)
    s = {"w": normal(64, 64)}
    with pytest.raises((IndexError, ValueError), match="label"):
        jitted(s, labels + 1)
    assert np.array_equal(s["w"], normal(64, 64))
    assert_same(jitted(s, labels), f({"w": normal(64, 64)}, labels), ulps=64)


# --- afterwards ---------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.w + 1,
        lambda s: 1 - s.w,
        lambda s: s.w @ X.T,
        lambda s: X @ s.w,
        lambda s: ops.tanh(s.w),
        lambda s: np.tanh(s.w),
        lambda s: np.asarray(s.w),
        lambda s: s.w[0],
        lambda s: s.w.sum(),
        lambda s: s.w.shape,
        lambda s: len(s.w),
        lambda s: bool(s.w == s.w),
        lambda s: copy.deepcopy(s.w),
        lambda s: pickle.dumps(s.w),
        lambda s: step(s, X),
        lambda s: fdbr.jit(step)(s, X),
        lambda s: fdbr.grad(loss)(s, X),
        lambda s: tree.map(lambda p: p * 2, s),
    ],
)
def test_what_was_donated_is_an_error_to_use(use, calls):
    jitted = fdbr.jit(step, donate_argnums=0)
    for _ in range(calls):
        state = owned(weights())
        jitted(state, X)
    with pytest.raises(fdbr.DonatedError, match=r"donated to the jitted function step"):
        use(state)
    with pytest.raises(fdbr.DonatedError, match="use what the call returned"):
        jitted(state, X)
    assert "donated to step" in repr(state)


def test_a_tree_that_was_flattened_before_does_not_remember_its_arrays():
    f = lambda state, x: (Weights(step(state.w, x)[0], state.b),)
    jitted = fdbr.jit(f, donate_argnums=0)
    for call in range(5):
        state = Weights(owned(weights()), normal(3))
        place = tree.leaves(state)[0].ctypes.data  # which it remembers
        (new,) = jitted(state, X)
        assert (addresses(new)[0] == place) is (call > 1)
        with pytest.raises(fdbr.DonatedError):
            tree.leaves(state)[0] + 1


def test_numbers_and_static_values_stay():
    jitted = warm(lambda s: {"n": s["n"] + 1, "w": s["w"] * 2}, {"n": 1, "w": normal(64, 64)})
    s = {"n": 4, "w": normal(64, 64)}
    jitted(s)
    assert s["n"] == 4


def test_what_is_returned_as_it_was_given_is_not_lost():
    f = lambda s: {"w": s["w"] * 2, "v": s["v"], "inner": s["inner"]}
    make = lambda: {"w": normal(64, 64), "v": normal(3), "inner": weights()}
    jitted = fdbr.jit(f, donate_argnums=0)
    state, desired = make(), make()
    for _ in range(4):
        state, desired = jitted(state), f(desired)
        assert_same(state, desired)


def test_what_runs_without_a_trace_donates_the_same():
    def f(s):
        float(s["x"])
        return {"x": s["x"] + 1, "inner": s["inner"]}

    jitted = fdbr.jit(f, donate_argnums=0, max_traces=1)
    state = {"x": np.array(0.5), "inner": weights()}
    for count in range(4):
        old = state
        state = jitted(old)
        assert_same(state, {"x": np.float64(1.5 + count), "inner": weights()})
        with pytest.raises(fdbr.DonatedError):
            old["inner"].w + 1
    assert jitted.report().eager


# --- with others --------------------------------------------------------------------


def test_under_a_transformation_nothing_is_donated():
    total = fdbr.jit(lambda s: (s.w**2).sum() + s.b.sum(), donate_argnums=0)
    state = weights()
    for _ in range(3):
        assert_same(fdbr.grad(total)(state), Weights(2 * state.w, np.ones_like(state.b)))
    assert_same(fdbr.jit(lambda s: total(s))(state), (state.w**2).sum() + state.b.sum(), 512)
    assert_same(state, weights())


def test_a_loop_trains_with_a_step_that_takes_its_state():
    def f(state, x):
        state, value = step(state, x)
        return state, {"loss": value}

    batches = train.Batches(normal(64, 64), size=32)
    runs = [
        [
            (float(report.metrics["loss"]), report.iteration)
            for report in train.fit(jitted, owned(weights()), batches, epochs=4)
        ]
        for jitted in (fdbr.jit(f, donate_argnums=0), fdbr.jit(f))
    ]
    assert runs[0] == runs[1]


def test_options_may_be_given_to_the_decorator():
    @fdbr.jit(donate_argnums=0)
    def double(s):
        return {"w": s["w"] * 2}

    s = {"w": normal(3)}
    double(s)
    assert (
        repr(s)
        == "{'w': <array donated to test_options_may_be_given_to_the_decorator.<locals>.double>}"
    )


def test_a_copy_of_the_function_donates_the_same():
    jitted = pickle.loads(pickle.dumps(fdbr.jit(step, donate_argnums=0)))
    state = owned(weights())
    jitted(state, X)
    with pytest.raises(fdbr.DonatedError):
        jitted(state, X)


@pytest.mark.parametrize(
    ("argnums", "error", "message"),
    [
        ("0", TypeError, "donate_argnums must be an integer or a sequence of integers"),
        (0.5, TypeError, "donate_argnums must be an integer or a sequence of integers"),
        (-1, ValueError, "donate_argnums must be different positions.*got -1"),
        ((0, 0), ValueError, r"donate_argnums must be different positions.*got \(0, 0\)"),
    ],
)
def test_positions_are_checked(argnums, error, message):
    with pytest.raises(error, match=f"fdbr.jit: {message}"):
        fdbr.jit(step, donate_argnums=argnums)


def test_a_call_without_what_is_to_be_donated_is_refused():
    jitted = fdbr.jit(step, donate_argnums=0)
    with pytest.raises(TypeError, match=r"donate_argnums=\(0,\) but step was called with 0 posit"):
        jitted(weights=weights(), x=X)


# --- the law ------------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples // 4)  # each compiles several kernels
@given(functions())
def test_random_programs_give_what_they_give_without(case):
    f, args = case

    def together(state, held):
        outs = tree.leaves(f(*state))
        total = sum(ops.mean(out) for out in outs)
        return [ops.tanh(x) * 2 - total for x in state], outs[0]

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        treat_as_large(patch)
        plain, donating = fdbr.jit(together), fdbr.jit(together, donate_argnums=0)
        for jitted in (plain, donating):
            jitted([a.copy() for a in args], ())  # the function itself, not its kernels
        for _ in range(2):
            desired = plain(list(args), ())
            assert_same(donating([a.copy() for a in args], ()), desired, ulps=0)
            held = [a.copy() for a in args]
            assert_same(donating(list(held), ()), desired, ulps=0)
            assert_same(held, args, ulps=0)


def _descend(state, x):
    weights, rate = state

    def loss(weights):
        y = x
        for w in weights:
            y = ops.tanh(y @ w)
        return ops.mean(y**2)

    value, derivatives = fdbr.value_and_grad(loss)(weights)
    steps = [-rate * slope for slope in derivatives]
    return ([w + step for w, step in zip(weights, steps, strict=True)], rate), value


@pytest.mark.unchecked
@pytest.mark.parametrize("patience", [0.0, 1.0])
def test_a_large_state_that_is_donated_is_there_once_but_for_the_first_call(patience):
    size, count = 1 << 10, 20
    # Read-only arrays of the library's own: of others the tape would keep copies.
    state = fdbr.device_get([np.full((size, size), 1e-3, "float32") for _ in range(count)]), 0.1
    whole = count * state[0][0].nbytes
    step = fdbr.jit(_descend, donate_argnums=0)
    x = np.ones((2, size), "float32")
    expected = _descend(([w.copy() for w in state[0]], 0.1), x)
    before = tiers.set_patience(patience)
    try:
        for call in range(5):
            tracemalloc.start()
            state, value = step(state, x)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            # At first all slopes, in whose memory new parameters are; then one, and no copy.
            assert most < (0.2 if call else 1.2) * whole
            if expected is not None:
                np.testing.assert_allclose(value, expected[1], rtol=1e-5)
                np.testing.assert_allclose(state[0][0], expected[0][0][0], rtol=1e-5)
                expected = None
    finally:
        tiers.set_patience(before)


def test_what_runs_step_by_step_overwrites_what_is_donated_too(monkeypatch):
    monkeypatch.setattr(donation, "_LARGE", 1 << 18)
    monkeypatch.setattr(tiers.Code, "advance", lambda self, budget: None)
    before = tiers.set_patience(1e-9)
    try:
        for optimizer in OPTIMIZERS:
            jitted = fdbr.jit(_trained(loss, optimizer), donate_argnums=0)
            params = weights(256)
            desired = params, optimizer.init(params)
            state = owned(desired)
            held = None
            for call in range(5):
                places = [place for place in addresses(state) if place]
                if call == 3:
                    held = state[0].w
                    kept = held.copy()
                state, value = jitted(state, X4)
                desired, expected = _trained(loss, optimizer)(desired, X4)
                np.testing.assert_allclose(value, expected, rtol=1e-4)
                for ours, theirs in zip(tree.leaves(state), tree.leaves(desired), strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
                if call in (1, 2, 4):
                    large = [a.ctypes.data for a in tree.leaves(state) if np.size(a) == 1 << 16]
                    assert set(large) <= set(places)
            assert np.array_equal(held, kept)
            (entry,) = jitted._cache.specializations.values()
            assert not entry.traces[0].code.optimised
    finally:
        tiers.set_patience(before)


def _trained(loss, optimizer):
    def step(state, x):
        params, memory = state
        value, slope = fdbr.value_and_grad(loss)(params, x)
        updates, memory = optimizer.update(slope, memory, params)
        return (train.optim.apply_updates(params, updates), memory), value

    return step


X4 = normal(4, 256, seed=1)

ACTIVATIONS = [ops.tanh, ops.relu, ops.gelu, ops.softmax, lambda y: ops.layer_norm(y)]
OPTIMIZERS = [train.optim.sgd(0.1), train.optim.momentum_sgd(0.1), train.optim.adam(0.01)]


@st.composite
def networks(draw):
    """A network of layers that it applies in any order, some of them more than once."""
    layers = draw(st.integers(3, 6))
    order = draw(st.permutations(range(layers)))
    again = draw(st.lists(st.integers(0, layers - 1), max_size=2))
    order += again
    kinds = [draw(st.sampled_from(ACTIVATIONS)) for _ in order]
    rows = draw(st.integers(1, 4))

    def apply(weights, x):
        x = ops.embed(weights["table"], x)
        for place, activation in zip(order, kinds, strict=True):
            x = activation(ops.linear(x, *weights["layers"][place]))
        return ops.mean((x @ weights["table"].T) ** 2)

    return apply, layers, len(again), np.arange(rows)


@pytest.mark.unchecked
@settings(max_examples=5)  # each compiles a network
@given(networks(), st.sampled_from(OPTIMIZERS))
def test_beside_its_state_a_step_has_few_gradients_at_a_time(network, optimizer):
    apply, layers, again, x = network
    size = 256
    weights = {
        "layers": [[normal(size, size, seed=i) / 16, normal(size)] for i in range(layers)],
        "table": normal(size, size, seed=99),
    }

    step = _trained(apply, optimizer)
    state = weights, optimizer.init(weights)
    desired = step(state, x)
    jitted = fdbr.jit(step, donate_argnums=0)
    jitted(owned(state), x)
    jitted(owned(state), x)
    ours = owned(state)
    workspaces._idle.clear()
    gc.collect()
    tracemalloc.start()
    ours, value = jitted(ours, x)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(value, desired[1], rtol=1e-4)
    each = 4 * size * size
    # Of the layer at hand, of the table, which is used first and last, and of what is used again.
    assert most < (3.3 + again + (optimizer is OPTIMIZERS[2])) * each, most / each


def test_compilation_ahead_takes_no_copy_of_what_is_donated():
    size, count = 1 << 9, 12
    state = [normal(size, size, seed=i) / 32 for i in range(count)], 0.1
    for w in state[0]:
        w.flags.writeable = False
    whole = count * state[0][0].nbytes
    kept = [w.copy() for w in state[0]]
    x = np.ones((2, size), "float32")
    jitted = fdbr.jit(_descend, donate_argnums=0).compile(state, x)
    tracemalloc.start()
    jitted.compile(state, x)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.3 * whole
    assert all(map(np.array_equal, state[0], kept))


TABLE = normal(8, 256)


@pytest.mark.parametrize(
    ("late", "good", "bad"),
    [
        (lambda w, k: ops.embed(TABLE, k).sum(), np.arange(3), np.arange(7, 10)),
        (lambda w, k: ops.take(w, k, axis=0).sum(), np.arange(3), np.arange(255, 258)),
        (lambda w, k: ops.at(w)[k].add(1.0)[0, 0], np.arange(3), np.arange(255, 258)),
        (lambda w, k: ops.linalg.cholesky(k * (1.0 + 0.0 * w[0, 0])).sum(), np.eye(3), -np.eye(3)),
        (lambda w, k: 1 // k, 2, 0),
        (lambda w, k: w[0, 0] if k > 0 else w[1, 1], 2.0, -2.0),
    ],
)
def test_what_may_fail_is_over_before_anything_is_overwritten(late, good, bad):
    """Although the function does it last, and with numbers that it has made last."""

    def f(state, x, k):
        value, slope = fdbr.value_and_grad(loss)(state, x)
        return tree.map(lambda p, g: p - 0.1 * g, state, slope), value, late(slope.w, k)

    jitted = warm(f, weights(256), X4, good)
    assert jitted.programs()[0].overwritten
    state = owned(weights(256))
    try:
        jitted(state, X4, bad)
    except Exception:
        assert_same(state, weights(256), ulps=0)
    else:
        assert bad == -2.0
    new, _, _ = jitted(owned(weights(256)), X4, good)
    assert_same(new, f(weights(256), X4, good)[0], ulps=1 << 12)
