"""Nothing that a program can write to changes a gradient behind its back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.core import ownership

ROWS, COLUMNS = 3, 4
LONG = 700  # rows of an array above the size up to which inputs are copied at once


def surroundings(rows, seed):
    """Arrays that a program may use as constants, masks and indices, all of them writable."""
    rng = np.random.default_rng(seed)
    return {
        "c": rng.normal(size=(rows, COLUMNS)),
        "row": rng.normal(size=COLUMNS),
        "square": rng.normal(size=(COLUMNS, COLUMNS)),
        "mask": rng.random((rows, COLUMNS)) < 0.5,
        "order": rng.permutation(rows),
        "some": rng.integers(0, rows, 5),
        "columns": rng.integers(0, COLUMNS, (rows, COLUMNS)),
        "labels": rng.integers(0, COLUMNS, rows),
        "low": rng.normal(size=(rows, 1)) - 1,
        "high": rng.normal(size=COLUMNS) + 1,
        "zero_d": np.array(rng.normal()),
        "axes": [1, 0],
        "list": [0, 1, 1],
    }


# Each takes an array of ROWS by COLUMNS, and the surroundings, to such an array.
STEPS = {
    "times itself": lambda x, e: x * x,
    "times a constant": lambda x, e: x * e["c"],
    "a constant times it": lambda x, e: e["c"] * x,
    "times a row": lambda x, e: x * e["row"],
    "times a 0-d array": lambda x, e: e["zero_d"] * x,
    "over a constant": lambda x, e: x / (e["c"] + 10),
    "a constant over it": lambda x, e: e["c"] / (x * x + 1),
    "plus a constant": lambda x, e: (x + e["c"]) * x,
    "minus its mean": lambda x, e: x - x.mean(axis=0),
    "a power": lambda x, e: (x * x + 0.5) ** e["row"],
    "tanh": lambda x, e: np.tanh(x),
    "exp": lambda x, e: np.exp(-x * x),
    "sqrt": lambda x, e: np.sqrt(x * x + 1),
    "arctan2": lambda x, e: np.arctan2(x, e["c"]),
    "hypot": lambda x, e: np.hypot(x, e["c"]),
    "maximum": lambda x, e: np.maximum(x, e["c"]),
    "clip": lambda x, e: np.clip(x, e["low"], e["high"]),
    "where mask": lambda x, e: np.where(e["mask"], x, e["c"]),
    "where comparison": lambda x, e: np.where(x > e["c"], x * 2, e["row"]),
    "relu": lambda x, e: ops.relu(x),
    "softmax": lambda x, e: ops.softmax(x),
    "log_softmax": lambda x, e: ops.log_softmax(x),
    "logsumexp": lambda x, e: x * ops.logsumexp(x, axis=1, keepdims=True),
    "max": lambda x, e: x * x.max(axis=1, keepdims=True),
    "times a matrix": lambda x, e: x @ e["square"],
    "a matrix times it": lambda x, e: (e["square"] @ x.T).T,
    "gram": lambda x, e: x @ (x.T @ x),
    "einsum": lambda x, e: np.einsum("ij,ij,jk->ik", x, e["c"], e["square"]),
    "tensordot": lambda x, e: np.tensordot(x, e["square"], axes=([1], [0])),
    "permuted rows": lambda x, e: x[e["order"]],
    "repeated rows": lambda x, e: x + x[e["some"]].sum(axis=0),
    "rows by a list": lambda x, e: x + x[e["list"]].sum(axis=0),
    "masked elements": lambda x, e: x * x[e["mask"]].sum(),
    "along an axis": lambda x, e: ops.take_along_axis(x, e["columns"], axis=1),
    "taken": lambda x, e: x + ops.take(x, e["some"], axis=0).sum(axis=0),
    "set": lambda x, e: ops.at(x)[e["order"][:2]].set(e["c"][:2]) * x,
    "set by a mask": lambda x, e: ops.at(x)[e["mask"]].set(0.5),
    "added": lambda x, e: ops.at(x)[e["some"]].add(x[e["some"]]),
    "into a constant": lambda x, e: ops.at(e["c"])[e["order"]].add(x * x),
    "reversed": lambda x, e: x[::-1] * x,
    "strided": lambda x, e: x * x[:, ::2].sum(),
    "reshaped": lambda x, e: x.reshape(-1)[::-1].reshape(x.shape) * x,
    "permuted axes": lambda x, e: np.transpose(np.transpose(x, e["axes"]) * x.T, e["axes"]),
    "joined": lambda x, e: np.concatenate([e["c"], x * x])[-x.shape[0] :],
    "stacked": lambda x, e: np.stack([x, e["c"], x]).prod(axis=0),
    "broadcast": lambda x, e: np.broadcast_to(x[0], x.shape) * x,
    "summed up": lambda x, e: np.cumsum(x, axis=0) * x,
    "cross entropy": lambda x, e: x * ops.softmax_cross_entropy(x, e["labels"]),
    "squared error": lambda x, e: x * ops.mean_squared_error(x, e["c"]),
    "cast": lambda x, e: x.astype("float32").astype("float64") * x,
    "a constant": lambda x, e: x * fdbr.stop_gradient(x),
}
PROGRAMS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)


def run(names, x, e):
    for name in names:
        x = STEPS[name](x, e)
    return x


def spoil(value):
    """Write to an array or list wherever that is possible."""
    if isinstance(value, list):
        value.reverse()
    elif value.dtype.kind == "f":
        value[...] = 7.25
    elif value.dtype.kind == "b":
        np.logical_not(value, out=value)
    else:
        value[...] = 0


def spoil_all(x, e):
    spoil(x)
    for value in e.values():
        spoil(value)


def a_view(rng, rows, how):
    """A writable array, and the array through which a program writes to it."""
    if how == "itself":
        x = rng.normal(size=(rows, COLUMNS))
        return x, x
    base = rng.normal(size=(rows + 2, 2 * COLUMNS))
    x = base[1:-1, ::2]
    if how == "read-only view":
        x.flags.writeable = False
    return x, base


def gradient(names, rows, seed, how, when):
    """The gradient of a program, with a fixed cotangent, and every array spoilt at some time."""
    rng = np.random.default_rng(seed)
    x, base = a_view(rng, rows, how)
    ct = rng.normal(size=(rows, COLUMNS))
    e = surroundings(rows, seed)

    def f(x):
        y = run(names, x, e)
        if when == "inside":
            spoil_all(base, e)
        return y

    out, pullback = fdbr.vjp(f, x)
    kept = out.copy()
    if when == "between":
        spoil_all(base, e)
    first = pullback(ct)[0]
    spoilt = ct.copy()
    if when != "never":
        spoil_all(base, e)
        spoil(ct)
    assert np.array_equal(out, kept, equal_nan=True)
    return first, pullback(spoilt)[0]


@given(
    PROGRAMS,
    st.sampled_from([ROWS, LONG]),
    st.integers(0, 1000),
    st.sampled_from(["itself", "view", "read-only view"]),
    st.sampled_from(["inside", "between", "after"]),
)
def test_writing_to_anything_leaves_gradients_alone(names, rows, seed, how, when):
    with np.errstate(all="ignore"):
        expected, _ = gradient(names, rows, seed, how, "never")
        first, second = gradient(names, rows, seed, how, when)
    assert np.array_equal(first, expected, equal_nan=True)
    assert np.array_equal(second, expected, equal_nan=True)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("rows", [ROWS, LONG])
def test_writing_to_anything_leaves_the_gradient_of_each_step_alone(name, rows):
    expected, _ = gradient([name], rows, 0, "itself", "never")
    for when in ("inside", "between"):
        first, second = gradient([name], rows, 0, "itself", when)
        assert np.array_equal(first, expected)
        assert np.array_equal(second, expected)


def second_derivative(names, rows, seed, when):
    rng = np.random.default_rng(seed)
    x, base = a_view(rng, rows, "view")
    ct = rng.normal(size=(rows, COLUMNS))
    e = surroundings(rows, seed)

    def length(x):
        _, pullback = fdbr.vjp(lambda y: run(names, y, e), x)
        if when == "before the pullback":
            spoil_all(base, e)
        (slope,) = pullback(ct)
        if when == "after the pullback":
            spoil_all(base, e)
            spoil(ct)
        return (slope * slope).sum()

    return fdbr.grad(length)(x)


@given(
    PROGRAMS.filter(lambda names: len(names) < 4),
    st.sampled_from([ROWS, LONG]),
    st.integers(0, 1000),
    st.sampled_from(["before the pullback", "after the pullback"]),
)
def test_writing_to_anything_leaves_second_derivatives_alone(names, rows, seed, when):
    with np.errstate(all="ignore"):
        expected = second_derivative(names, rows, seed, "never")
        found = second_derivative(names, rows, seed, when)
    assert np.array_equal(found, expected, equal_nan=True)


def flags(values):
    return [v.flags.writeable for v in values if isinstance(v, np.ndarray)]


@given(PROGRAMS, st.sampled_from([ROWS, LONG]))
def test_arrays_of_the_user_stay_writable_and_unchanged(names, rows):
    e = surroundings(rows, 0)
    x, base = a_view(np.random.default_rng(0), rows, "view")
    ct = np.ones((rows, COLUMNS))
    arrays = [x, base, ct, *(v for v in e.values() if isinstance(v, np.ndarray))]
    copies = [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        out, pullback = fdbr.vjp(lambda x: run(names, x, e), x)
        pullback(ct)
        fdbr.grad(lambda x: run(names, x, e).sum())(x)
    assert all(flags(arrays))
    for array, copy in zip(arrays, copies, strict=True):
        assert np.array_equal(array, copy)
    out_of_vjp = [out, *pullback(ct)]
    assert not any(np.shares_memory(a, b) for a in arrays for b in out_of_vjp)


@given(PROGRAMS, st.sampled_from([ROWS, LONG]))
def test_what_transformations_hand_out_is_read_only(names, rows):
    e = surroundings(rows, 0)
    x = np.random.default_rng(0).normal(size=(rows, COLUMNS))

    def f(x):
        y = run(names, x, e)
        return y.sum(), {"y": y, "view": y.T, "x": x, "stopped": fdbr.stop_gradient(y)}

    with np.errstate(all="ignore"):
        (_, aux), slope = fdbr.value_and_grad(f, has_aux=True)(x)
        out, pullback = fdbr.vjp(lambda x: run(names, x, e), x)
        (cotangent,) = pullback(np.ones((rows, COLUMNS)))
    for value in (*aux.values(), slope, out, cotangent):
        assert not value.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0
        assert not np.shares_memory(value, x)


# --- results and the user's memory --------------------------------------------------

ALIASES = {
    "itself": lambda x: x,
    "reshaped": lambda x: x.reshape(-1),
    "transposed": lambda x: x.T,
    "sliced": lambda x: x[::2],
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "real": lambda x: x.real,
    "a tree of them": lambda x: {"a": x, "b": (x[0], x.T)},
}


@pytest.mark.parametrize("rows", [ROWS, LONG])
@pytest.mark.parametrize("name", ALIASES)
def test_outputs_stay_what_they_were_when_the_input_is_written_to(name, rows):
    x = np.ones((rows, COLUMNS))
    out, _ = fdbr.vjp(ALIASES[name], x)
    (_, aux), _ = fdbr.value_and_grad(lambda x: (x.sum(), ALIASES[name](x)), has_aux=True)(x)
    x[...] = 7
    for leaf in fdbr.tree.leaves([out, aux]):
        assert (leaf == 1).all()
        assert not leaf.flags.writeable
    assert x.flags.writeable


@pytest.mark.parametrize("rows", [ROWS, LONG])
@pytest.mark.parametrize("name", [name for name in ALIASES if name != "a tree of them"])
def test_stopped_gradients_stay_what_they_were_when_the_input_is_written_to(name, rows):
    x = np.ones((rows, COLUMNS))
    kept = []

    def f(x):
        kept.append(fdbr.stop_gradient(ALIASES[name](x)))
        return x.sum()

    fdbr.grad(f)(x)
    x[...] = 7
    assert (kept[0] == 1).all()
    assert not kept[0].flags.writeable


@pytest.mark.parametrize("rows", [ROWS, LONG])
def test_cotangents_stay_with_the_user(rows):
    ct = np.ones((rows, COLUMNS))
    _, pullback = fdbr.vjp(lambda x, y: (x + y, x.T, y[::-1]), ct, ct)
    results = [*pullback((ct, None, None)), *pullback((None, ct.T, ct)), *pullback((ct, ct.T, ct))]
    for slope in results:
        assert not np.shares_memory(slope, ct)
        assert not slope.flags.writeable
    before = [slope.copy() for slope in results]
    ct[...] = 7
    assert all((a == b).all() for a, b in zip(results, before, strict=True))
    assert ct.flags.writeable


def test_a_read_only_view_of_a_writable_array_is_not_trusted():
    base = np.ones(5000)
    view = base[:]
    view.flags.writeable = False
    _, pullback = fdbr.vjp(lambda x: x * x, view)
    base[:] = 7
    assert (pullback(np.ones(5000))[0] == 2).all()


def by_an_older_view(x):
    view = x[:]
    x.flags.writeable = False
    return lambda: view.fill(7)


def by_unlocking(x):
    def write():
        x.flags.writeable = True
        x.fill(7)
        x.flags.writeable = False

    x.flags.writeable = False
    return write


def by_a_view_while_unlocked(x):
    x.flags.writeable = False
    x.flags.writeable = True
    view = x.reshape(-1, 1)
    x.flags.writeable = False
    return lambda: view.fill(7)


@pytest.mark.parametrize("lock", [by_an_older_view, by_unlocking, by_a_view_while_unlocked])
@pytest.mark.parametrize("count", [1, 10, 5000, 200_000])
@pytest.mark.parametrize("use", ["input", "constant", "cotangent", "jitted constant", "checkpoint"])
def test_a_read_only_array_that_its_owner_can_change_is_not_trusted(lock, count, use):
    x = np.full(count, 3.0)
    write = lock(x)
    one = np.ones(count)
    if use == "cotangent":
        _, pullback = fdbr.vjp(lambda y: (2 * y, y), one)
        found = pullback((None, x))[0]
        write()
        assert (found == 3).all()
        return
    if use == "jitted constant":
        f = fdbr.jit(lambda y: y * x)
        for _ in range(3):
            assert (f(one) == 3).all()
        write()
        with pytest.raises(fdbr.ImpureError, match="has changed"):
            f(one)
        return
    f = (lambda y: y * y) if use == "input" else (lambda y: y * x)
    if use == "checkpoint":
        f = fdbr.checkpoint(lambda y: y * y)
    _, pullback = fdbr.vjp(f, one if use == "constant" else x)
    write()
    assert (pullback(one)[0] == (3 if use == "constant" else 6)).all()


@pytest.mark.parametrize("count", [10, 5000])
def test_a_read_only_array_over_a_writable_buffer_is_not_trusted(count):
    buffer = bytearray(np.ones(count).tobytes())
    x = np.frombuffer(memoryview(buffer).toreadonly())
    assert not x.flags.writeable
    _, pullback = fdbr.vjp(lambda x: x * x, x)
    np.frombuffer(buffer)[:] = 7
    assert (pullback(np.ones(count))[0] == 2).all()


@pytest.mark.parametrize("count", [10, 5000])
def test_a_mapped_file_may_be_written_to(tmp_path, count):
    np.save(tmp_path / "x.npy", np.ones(count))
    x = np.load(tmp_path / "x.npy", mmap_mode="r+")
    _, pullback = fdbr.vjp(lambda x: x * x, x)
    x[:] = 7
    (slope,) = pullback(np.ones(count))
    assert (slope == 2).all()
    assert type(slope) is np.ndarray


def test_a_later_use_of_a_written_input_is_consistent_with_its_derivative():
    x = np.full(5000, 2.0)
    constant = np.full(5000, 3.0)

    def f(t):
        before = t * constant
        constant[:] = 5.0
        return (before + t * constant).sum()

    assert (fdbr.grad(f)(x) == 8.0).all()


# --- what cannot be written to ------------------------------------------------------


def test_assignment_into_a_traced_array_says_what_to_write_instead():
    def f(x):
        x[0] = 1.0
        return x.sum()

    message = (
        r"assignment into <traced float64\[2\] of grad\(.*f\)>.*x = x\.at\[key\]\.set\(value\)"
    )
    with pytest.raises(TypeError, match=message):
        fdbr.grad(f)(np.ones(2))


def test_augmented_assignment_to_a_part_says_what_to_write_instead():
    def f(x):
        x[0] += 1.0
        return x.sum()

    with pytest.raises(TypeError, match=r"x\.at\[key\]\.add\(value\) for \+="):
        fdbr.grad(f)(np.ones(2))


def test_augmented_assignment_to_a_name_makes_a_new_value():
    def f(x):
        y = 1.0 * x
        y += x
        y *= x
        return (y + x).sum()

    assert fdbr.grad(f)(np.full(2, 3.0)).tolist() == [13.0, 13.0]


def test_augmented_assignment_to_an_argument_says_what_to_write_instead():
    def f(x):
        y = x
        y += x
        return y.sum()

    with pytest.raises(TypeError, match=r"an argument of .*f, .* write x = x \+ y"):
        fdbr.grad(f)(np.full(2, 3.0))


def test_deleting_from_a_traced_array_is_refused():
    def f(x):
        del x[0]
        return x.sum()

    with pytest.raises((TypeError, AttributeError)):
        fdbr.grad(f)(np.ones(2))


def test_adding_a_traced_value_to_an_array_in_place_says_what_to_write_instead():
    def f(x):
        y = np.zeros(2)
        y += x
        return y.sum()

    with pytest.raises(TypeError, match=r"for x \+= y on an array x, write x = x \+ y"):
        fdbr.grad(f)(np.ones(2))


def test_putting_a_traced_array_into_an_array_says_what_to_write_instead():
    def f(x):
        y = np.zeros((2, 2))
        y[0] = x
        return y.sum()

    with pytest.raises(TypeError, match=r"B = ops\.at\(B\)\[key\]\.set\(x\)"):
        fdbr.grad(f)(np.ones(2))


def test_putting_a_traced_number_into_an_array_is_refused():
    def f(x):
        y = np.zeros(2)
        y[0] = x
        return y.sum()

    with pytest.raises((TypeError, ValueError)):
        fdbr.grad(f)(1.0)


@pytest.mark.parametrize("name", ["shape", "dtype", "T", "real", "new"])
def test_attributes_of_traced_values_cannot_be_set(name):
    def f(x):
        setattr(x, name, 1)
        return x.sum()

    with pytest.raises(AttributeError):
        fdbr.grad(f)(np.ones(2))


def test_constants_computed_inside_are_read_only():
    def f(x):
        mask = x > 0
        with pytest.raises(ValueError, match="read-only"):
            mask[:] = False
        return np.where(mask, x, 0).sum()

    assert fdbr.grad(f)(np.ones(2)).tolist() == [1.0, 1.0]


VIEWS = {
    "transposed": lambda x: x.T,
    "added up": lambda x: x.sum(),
    "repeated": lambda x: np.broadcast_to(x[None], (2, *x.shape)).sum(axis=0).T,
    "joined": lambda x: np.concatenate([x, np.ones((99 * len(x), COLUMNS))]),
    "stacked": lambda x: np.stack([x, np.zeros(x.shape)]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_gradient_may_be_a_view_but_keeps_little_more_memory(name):
    x = np.ones((LONG, COLUMNS))
    out, pullback = fdbr.vjp(VIEWS[name], x)
    ct = np.array(np.random.default_rng(0).normal(size=out.shape))
    ct.setflags(write=False)
    (slope,) = pullback(ct)
    (again,) = pullback(ct.copy())
    assert np.array_equal(slope, again)
    assert not slope.flags.writeable
    whole = slope
    while whole.base is not None:
        whole = whole.base
    assert whole.nbytes <= 4 * slope.nbytes


RULES = {
    "vjp": lambda kept: fdbr.custom_vjp(lambda x: 1 * x, fwd=lambda x: (1 * x, None), bwd=(
        lambda residuals, ct: (kept,))),
    "vjp out": lambda kept: fdbr.custom_vjp(lambda x: kept, fwd=lambda x: (kept, kept), bwd=(
        lambda residuals, ct: (residuals * ct,))),
    "jvp": lambda kept: fdbr.custom_jvp(lambda x: 1 * x, jvp=lambda p, t: (1 * p[0], kept)),
    "jvp both": lambda kept: fdbr.custom_jvp(lambda x: kept, jvp=lambda p, t: (kept, kept)),
}  # fmt: skip
WAYS = {
    "grad": lambda f, x: fdbr.grad(lambda x: np.sum(f(x)))(x),
    "vjp": lambda f, x: (lambda out, pullback: (out, pullback(np.ones(3))))(*fdbr.vjp(f, x)),
    "jvp": lambda f, x: fdbr.jvp(f, (x,), (np.ones(3),)),
    "vmap": lambda f, x: fdbr.vmap(fdbr.grad(lambda x: np.sum(f(x))))(x[None]),
    "jit": lambda f, x: fdbr.jit(fdbr.grad(lambda x: np.sum(f(x))))(x),
    "hvp": lambda f, x: fdbr.jvp(fdbr.grad(lambda x: np.sum(f(x) * x)), (x,), (np.ones(3),)),
}


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", RULES)
def test_an_array_that_the_rule_of_a_user_gives_stays_theirs(rule, way, view):
    kept = np.ones((1, 3)).reshape(3) if view else np.ones(3)
    if rule.startswith("jvp") and way in ("grad", "vjp", "vmap", "jit", "hvp") and rule != "jvp":
        pytest.skip("its tangent is no linear function of the given one")
    try:
        found = WAYS[way](RULES[rule](kept), np.zeros(3))
    except TypeError:
        assert rule == "jvp"  # nor is this one
        return
    assert kept.flags.writeable
    for leaf in fdbr.tree.leaves(found):
        assert not np.shares_memory(leaf, kept)


def test_what_only_the_result_of_a_rule_refers_to_is_not_copied(monkeypatch):
    def refuse(array):
        raise AssertionError("a copy")

    monkeypatch.setattr(ownership, "protect", refuse)
    x = np.ones(3)

    def forward(x):
        y = np.tanh(x)
        return y, y

    keeps = fdbr.custom_vjp(np.tanh, fwd=forward, bwd=lambda y, ct: (ct * (1 - y * y),))
    hands_on = fdbr.custom_vjp(np.tanh, fwd=lambda x: (1 * x, x), bwd=lambda x, ct: (ct,))
    pushes = fdbr.custom_jvp(np.tanh, jvp=lambda p, t: (np.tanh(p[0]), t[0] * 2))
    for f in (keeps, hands_on, pushes):
        fdbr.grad(lambda x, f=f: np.sum(f(x) * 2))(x)
        fdbr.jvp(f, (x,), (x,))
