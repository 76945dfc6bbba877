"""vmap, as a user sees it; control flow has tests of its own in test_control_flow.py."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose


@fdbr.frozen
class Affine:
    weight: object
    bias: object
    mean: object = fdbr.buffer(default=None)
    power: int = fdbr.static(default=2)

    def __call__(self, x):
        y = self.weight @ x + self.bias
        return y**self.power if self.mean is None else y**self.power - self.mean


# Functions of a vector (3,), a matrix (3, 2) and a number.
FUNCTIONS = {
    "products": lambda v, m, s: np.tanh(v @ m) * s,
    "NumPy": lambda v, m, s: np.sum(np.sin(m) ** 2, axis=0) / np.sqrt(s**2 + np.mean(v**2)),
    "a tree": lambda v, m, s: {"a": v[::-1] * s, "b": (ops.softmax(m, axis=0), s**3)},
    "indexing": lambda v, m, s: ops.at(m)[[0, 0], :].add(v[1:]) * v[[2, 0, 0]][:, None] + s,
    "a loop": lambda v, m, s: sum((v**n * s for n in range(1, 4)), 0.0),
    "joined": lambda v, m, s: np.concatenate([m.ravel(), v, s.reshape(1)]) ** 2,
    "reductions": lambda v, m, s: (ops.max(m, axis=1) * s, ops.cumulative_sum(v), m.prod()),
    "einsum": lambda v, m, s: np.einsum("ij,i,k->kj", m, v, v) ** 2 * s,
}
SHAPES = [(3,), (3, 2), ()]
SUBSETS = [mask for mask in itertools.product([True, False], repeat=3) if any(mask)]


def scalar(f):
    return lambda *args: sum((ops.sum(np.sin(y)) for y in tree.leaves(f(*args))), 0.0)


# What is vectorised: of a function, another of the same arguments.
FORMS = {
    "value": lambda f: f,
    "grad": lambda f: fdbr.grad(scalar(f), (0, 1, 2)),
    "jvp": lambda f: lambda *args: fdbr.jvp(f, args, args),
    "vjp": lambda f: lambda *args: fdbr.vjp(scalar(f), *args)[1](1.0),
    "jvp of grad": lambda f: lambda *args: fdbr.hvp(scalar(f), args, args),
    "hessian": lambda f: fdbr.hessian(scalar(f), (0, 2)),
    "jacfwd": lambda f: fdbr.jacfwd(f, 1),
    "linearize": lambda f: lambda *args: fdbr.linearize(f, *args)[1](*args),
}


def arguments(seed, batched, size):
    """Random arguments, of which some have a batch as their first axis."""
    rng = np.random.default_rng(seed)
    shapes = [(size, *s) if b else s for s, b in zip(SHAPES, batched, strict=True)]
    return [
        np.asarray(rng.uniform(0.3, 1.5, shape) * rng.choice([-1, 1], shape)) for shape in shapes
    ]


def looped(f, args, batched):
    """What vmap must give: the results of the examples, one by one, stacked."""
    size = next(len(arg) for arg, b in zip(args, batched, strict=True) if b)
    each = [f(*[a[i] if b else a for a, b in zip(args, batched, strict=True)]) for i in range(size)]
    return tree.map(lambda *leaves: np.stack(leaves), *each)


# --- laws ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("size", [1, 3])
def test_it_gives_what_a_loop_gives(name, form, size):
    f = FORMS[form](FUNCTIONS[name])
    for number, batched in enumerate(SUBSETS):
        args = arguments(number, batched, size)
        axes = tuple(0 if b else None for b in batched)
        found = fdbr.vmap(f, in_axes=axes)(*args)
        assert_allclose(found, looped(f, args, batched), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_the_batch_may_be_along_any_axis(name, data):
    f = FUNCTIONS[name]
    batched = data.draw(st.sampled_from(SUBSETS))
    args = arguments(data.draw(st.integers(0, 999)), batched, data.draw(st.integers(0, 4)))
    ranks = [len(shape) for shape in SHAPES]
    in_axes = [
        data.draw(st.integers(-rank - 1, rank)) if b else None
        for rank, b in zip(ranks, batched, strict=True)
    ]
    moved = [
        arg if axis is None else np.moveaxis(arg, 0, axis)
        for arg, axis in zip(args, in_axes, strict=True)
    ]
    first = fdbr.vmap(f, in_axes=tuple(0 if b else None for b in batched))(*args)
    leaves, structure = tree.flatten(first)
    out_axes = [data.draw(st.integers(-leaf.ndim, leaf.ndim - 1)) for leaf in leaves]
    found = fdbr.vmap(f, tuple(in_axes), tree.unflatten(structure, out_axes))(*moved)
    assert tree.structure(found) == structure
    for one, leaf, axis in zip(tree.leaves(found), leaves, out_axes, strict=True):
        assert_allclose(one, np.moveaxis(leaf, 0, axis), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("batched", SUBSETS, ids=str)
def test_gradients_of_a_batch_are_those_of_its_examples(name, batched):
    f, args = scalar(FUNCTIONS[name]), arguments(0, batched, 3)
    axes = tuple(0 if b else None for b in batched)
    total = lambda *args: ops.sum(fdbr.vmap(f, axes)(*args))
    of_batch = fdbr.grad(total, (0, 1, 2))(*args)
    each = fdbr.vmap(fdbr.grad(f, (0, 1, 2)), axes)(*args)
    for one, other, b in zip(of_batch, each, batched, strict=True):
        assert_allclose(one, other if b else other.sum(axis=0), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("batched", SUBSETS, ids=str)
def test_forward_derivatives_of_a_batch(name, batched):
    f, args, derivatives = FUNCTIONS[name], arguments(0, batched, 3), arguments(1, batched, 3)
    axes = tuple(0 if b else None for b in batched)
    found = fdbr.jvp(fdbr.vmap(f, axes), args, derivatives)
    both = fdbr.vmap(lambda args, derivatives: fdbr.jvp(f, args, derivatives), (axes, axes))
    assert_allclose(found, both(tuple(args), tuple(derivatives)), rtol=1e-9, atol=1e-10)
    mixed = fdbr.jvp(fdbr.vmap(fdbr.grad(scalar(f)), axes), args, derivatives)
    second = fdbr.vmap(lambda args, t: fdbr.jvp(fdbr.grad(scalar(f)), args, t), (axes, axes))
    assert_allclose(mixed, second(tuple(args), tuple(derivatives)), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(seed=st.integers(0, 999), outer=st.integers(0, 3), inner=st.integers(0, 3))
def test_nested_batches(name, seed, outer, inner):
    rng = np.random.default_rng(seed)
    v, m, s = rng.normal(size=(3, outer)), rng.normal(size=(inner, 3, 2)), np.array(0.7)
    f = FUNCTIONS[name]
    rows = fdbr.vmap(fdbr.vmap(f, (None, 0, None)), (1, None, None))(v, m, s)
    columns = fdbr.vmap(fdbr.vmap(f, (0, None, None)), (None, 0, None), 1)(v.T, m, s)
    assert_allclose(rows, columns, rtol=1e-10, atol=1e-12)
    for i, j in itertools.product(range(outer), range(inner)):
        one = tree.map(lambda leaf, i=i, j=j: leaf[i, j], rows)
        assert_allclose(one, f(v[:, i], m[j], s), rtol=1e-10, atol=1e-12)


def test_three_deep_with_functions_that_see_what_is_around():
    x, y, z = np.arange(2.0), np.arange(3.0), np.arange(4.0)
    deep = lambda f: fdbr.vmap(
        lambda a: fdbr.vmap(lambda b: fdbr.vmap(lambda c: f(a, b, c))(z))(y)
    )(x)
    grid = np.meshgrid(x, y, z, indexing="ij")
    assert_allclose(
        deep(lambda a, b, c: np.sin(a) * b + c**2), np.sin(grid[0]) * grid[1] + grid[2] ** 2
    )
    slope = deep(lambda a, b, c: fdbr.grad(lambda t: np.sin(t * a) * b + c * t)(b))
    assert_allclose(slope, np.cos(grid[1] * grid[0]) * grid[0] * grid[1] + grid[2])


# --- arguments ----------------------------------------------------------------------

XS = np.array([1.0, 2.0, 3.0])


def test_axes_of_trees():
    f = lambda d, x: d["a"] * d["b"][0] + d["b"][1] * x
    d = {"a": XS, "b": (2.0, np.stack([XS, XS], axis=1))}
    expected = np.stack([XS * 2 + XS, XS * 2 + XS], axis=1)
    given_axes = {"a": 0, "b": (None, 0)}
    assert_allclose(fdbr.vmap(f, (given_axes, None))(d, 1.0), expected)
    assert_allclose(fdbr.vmap(lambda d: f(d, 1.0), given_axes)(d), expected)
    assert_allclose(fdbr.vmap(f, [given_axes, None])(d, 1.0), expected)
    prefix = {"a": None, "b": 0}
    assert fdbr.vmap(lambda d: d["b"][0] * d["a"], (prefix,))({"a": 2.0, "b": (XS, XS)})[1] == 4.0
    assert fdbr.vmap(lambda d: d["a"].sum(), (-1,))({"a": np.ones((2, 5))}).shape == (5,)


def test_frozen_classes_are_trees():
    layers = Affine(np.ones((4, 2, 3)), np.zeros((4, 2)), np.ones((4, 2)))
    x = np.arange(3.0)
    out = fdbr.vmap(lambda layer, x: layer(x), (0, None))(layers, x)
    assert_allclose(out, np.full((4, 2), 8.0))
    derivatives = fdbr.vmap(fdbr.grad(lambda layer, x: layer(x).sum()), (0, None))(layers, x)
    assert isinstance(derivatives, Affine)
    assert derivatives.weight.shape == (4, 2, 3)
    assert derivatives.mean is None
    made = fdbr.vmap(lambda w: Affine(w, 0.0, power=3))(layers.weight)
    assert made.power == 3
    assert made.bias.shape == (4,)


def test_a_callable_object_is_a_function():
    layer = Affine(np.ones((2, 3)), np.zeros(2))
    assert fdbr.vmap(layer)(np.ones((5, 3))).shape == (5, 2)


def test_nothing_is_no_leaf():
    f = lambda d, y: (d["x"] * 2, y, None)
    out = fdbr.vmap(f)({"x": XS, "y": None}, None)
    assert (out[0] == 2 * XS).all()
    assert out[1:] == (None, None)


def test_keyword_arguments_lie_along_axis_0():
    f = lambda x, *, scale, shift=0.0: x * scale + shift
    assert (fdbr.vmap(f)(XS, scale=XS) == XS**2).all()
    assert (fdbr.vmap(f, in_axes=(None,))(2.0, scale=XS, shift=XS) == 3 * XS).all()
    assert (fdbr.vmap(lambda **d: d["p"]["q"] * 2)(p={"q": XS}) == 2 * XS).all()
    derivatives = fdbr.vmap(fdbr.grad(f))(XS, scale=XS)
    assert (derivatives == XS).all()


def test_the_size_of_the_batch_where_no_argument_tells():
    assert fdbr.vmap(lambda: 3.0, axis_size=2)().tolist() == [3.0, 3.0]
    assert fdbr.vmap(lambda x: x * 2, in_axes=None, axis_size=2)(1.5).tolist() == [3.0, 3.0]
    assert fdbr.vmap(lambda x: x, axis_size=np.int64(3))(XS).tolist() == XS.tolist()
    assert fdbr.vmap(lambda x: np.ones(2) * x, None, axis_size=0)(1.0).shape == (0, 2)


def test_axes_may_be_integers_of_any_type():
    assert fdbr.vmap(lambda x: x.sum(), np.int64(1), np.int32(0))(np.ones((2, 5))).shape == (5,)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool", "float32", "complex64"])
def test_values_of_every_dtype(dtype):
    x = np.array([[0, 1], [1, 1], [0, 0]]).astype(dtype)
    f = lambda row: (row, row[0] == row[1], ops.any(row), ops.argmax(ops.abs(row)), row * row)
    out = fdbr.vmap(f)(x)
    assert_allclose(out, looped(f, [x], [True]))
    assert out[0].dtype == out[4].dtype == np.dtype(dtype)
    assert out[1].dtype == bool


def test_inside_a_value_has_the_shape_of_one_example():
    seen = []

    def f(x, y):
        seen.append((x.shape, x.ndim, x.size, len(x), y.shape, x.dtype, x.nbytes))
        return [row.sum() for row in x]

    out = fdbr.vmap(f, (1, 0))(np.ones((2, 5, 3), "float32"), np.ones(5))
    assert seen == [((2, 3), 2, 6, 2, (), np.dtype("float32"), 24)]
    assert [leaf.shape for leaf in out] == [(5,), (5,)]


def test_functions_of_modules_other_than_numpy(xp, to_numpy):
    x = xp.asarray([[0.3, 0.7], [1.0, -2.0]])
    out = fdbr.vmap(lambda row: ops.sin(row) * ops.sum(row) if row[1] > 0 else row, 1, 1)(x)
    assert type(out) is type(x)
    expected = [np.sin([0.3, 1.0]) * 1.3, [0.7, -2.0]]
    assert_allclose(to_numpy(out), np.stack(expected, axis=1))


# --- results ------------------------------------------------------------------------


def test_results_that_no_example_entered_are_repeated():
    f = lambda x: {"n": 3, "b": True, "f": 1.5, "a": np.arange(2, dtype="int8"), "x": x}
    out = fdbr.vmap(f, out_axes={"n": 0, "b": 0, "f": 0, "a": 1, "x": 0})(XS)
    assert out["n"].tolist() == [3, 3, 3]
    assert out["b"].dtype == bool
    assert out["f"].tolist() == [1.5] * 3
    assert out["a"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert out["a"].dtype == np.int8


def test_or_come_out_as_they_are():
    shared = np.arange(4.0)
    f = lambda x: (x, shared, "linear", np.sin, 3)
    out = fdbr.vmap(f, out_axes=(0, None, None, None, None))(XS)
    assert out[1:] == (shared, "linear", np.sin, 3)
    assert out[1] is shared
    value = fdbr.grad(lambda c: fdbr.vmap(lambda x: (x * c, c**2), out_axes=(0, None))(XS)[1])
    assert value(3.0) == 6.0


def test_a_constant_of_around_is_differentiated():
    total = lambda c: ops.sum(fdbr.vmap(lambda x: c)(XS))
    assert fdbr.grad(total)(2.0) == 3.0
    assert fdbr.jvp(total, (2.0,), (1.0,)) == (6.0, 3.0)


def test_stop_gradient_leaves_the_batch():
    f = lambda x: x * fdbr.stop_gradient(x)
    assert (fdbr.vmap(fdbr.grad(f))(XS) == XS).all()
    assert (fdbr.grad(lambda xs: fdbr.vmap(f)(xs).sum())(XS) == XS).all()
    assert (fdbr.vmap(fdbr.stop_gradient)(XS) == XS).all()


def test_results_are_read_only_and_stay_when_arguments_change():
    x = np.ones((2, 5000))
    for f in (lambda r: r, lambda r: r.reshape(2, -1), lambda r: r * 1.0, lambda r: r[::2]):
        out = fdbr.vmap(f)(x)
        x[:] = 7.0
        assert (out == 1).all()
        assert not out.flags.writeable
        x[:] = 1.0


def test_a_repeated_constant_stays_when_it_changes():
    shared = np.ones(50_000)
    for f in (lambda x: shared, lambda x: shared if x > 2 else shared[::-1]):
        out = fdbr.vmap(f)(XS)
        shared[:] = 7.0
        assert (out == 1).all()
        assert not out.flags.writeable
        shared[:] = 1.0


def test_what_is_written_in_between_does_not_change_gradients():
    x, c = np.full((2, 5000), 2.0), np.full(5000, 3.0)

    def f(row):
        out = row * row * c
        c[:], x[:] = 9.0, 9.0
        return out.sum()

    assert (fdbr.vmap(fdbr.grad(f))(x) == 12.0).all()


def test_a_value_that_escaped_is_an_error():
    kept = []
    fdbr.vmap(lambda x: kept.append(x) or x)(XS)
    with pytest.raises(fdbr.EscapedTracerError, match=r"a traced value of vmap\("):
        np.sin(kept[0])
    with pytest.raises(fdbr.EscapedTracerError, match=r"fdbr.vmap: a traced value of vmap\("):
        fdbr.vmap(lambda x: kept[0])(XS)
    with pytest.raises(fdbr.EscapedTracerError, match=r"fdbr.vmap: a traced value"):
        fdbr.vmap(lambda x: x, None, axis_size=2)(kept[0])


def test_it_keeps_the_name_and_the_text_of_a_function():
    def mine(x):
        """Mine."""
        return x

    assert fdbr.vmap(mine).__name__ == "mine"
    assert fdbr.vmap(mine).__doc__ == "Mine."
    assert fdbr.vmap(functools.partial(mine))(XS).tolist() == XS.tolist()


# --- errors -------------------------------------------------------------------------


def model(p, x=0.0):
    return p["w"] * x


P = {"w": np.ones((3, 2)), "n": 2.0}
ERRORS = {
    "no function": (lambda: fdbr.vmap(3), TypeError, "fdbr.vmap: f must be a function, not int 3"),
    "too many axes": (
        lambda: fdbr.vmap(model, (0, 0, None))(P, XS),
        ValueError,
        r"fdbr.vmap: in_axes=\(0, 0, None\) has 3 entries, but model was called with 2 positional",
    ),
    "an axis that is not there": (
        lambda: fdbr.vmap(model, ({"w": 2, "n": None}, 0))(P, XS),
        ValueError,
        r"fdbr.vmap: in_axes is 2 for argument 0 at \['w'\] of model, which is float64\[3,2\]; "
        "give an axis that it has, or None",
    ),
    "a negative one": (
        lambda: fdbr.vmap(model, ({"w": -3, "n": None}, 0))(P, XS),
        ValueError,
        r"in_axes is -3 for argument 0 at \['w'\]",
    ),
    "an axis of a number": (
        lambda: fdbr.vmap(model, ({"w": 0, "n": 0}, 0))(P, XS),
        ValueError,
        r"in_axes is 0 for argument 0 at \['n'\] of model, which is float 2.0",
    ),
    "a number by keyword": (
        lambda: fdbr.vmap(model)({"w": XS}, x=2.0),
        ValueError,
        "in_axes is 0 for keyword argument 'x' of model, which is float 2.0; pass it by position",
    ),
    "no prefix": (
        lambda: fdbr.vmap(model, ({"v": 0}, 0))(P, XS),
        ValueError,
        "fdbr.vmap: the in_axes of argument 0 of model must be an integer, None, or a tree of "
        "these that is a prefix of PyTreeSpec",
    ),
    "no integer": (
        lambda: fdbr.vmap(model, ("w", 0))(P, XS),
        TypeError,
        "fdbr.vmap: the in_axes of argument 0 of model must be integers or None, not 'w'",
    ),
    "a fraction in a tree": (
        lambda: fdbr.vmap(model, ({"w": 0.5, "n": None}, 0))(P, XS),
        TypeError,
        "the in_axes of argument 0 of model must be integers or None",
    ),
    "sizes": (
        lambda: fdbr.vmap(model, ({"w": 1, "n": None}, 0))(P, XS),
        ValueError,
        r"fdbr.vmap: the batch sizes of model differ: 2 of argument 0 at \['w'\], 3 of argument 1",
    ),
    "the size of a keyword argument": (
        lambda: fdbr.vmap(model, ({"w": 1, "n": None},))(P, x={"k": XS}),
        ValueError,
        r"2 of argument 0 at \['w'\], 3 of keyword argument 'x' at \['k'\]",
    ),
    "axis_size": (
        lambda: fdbr.vmap(lambda x: x, axis_size=4)(XS),
        ValueError,
        "differ: 4 of axis_size, 3 of argument 0",
    ),
    "axis_size is negative": (
        lambda: fdbr.vmap(lambda x: x, axis_size=-1),
        ValueError,
        "fdbr.vmap: axis_size must be at least 0, got -1",
    ),
    "axis_size is a fraction": (
        lambda: fdbr.vmap(lambda x: x, axis_size=2.5),
        TypeError,
        "fdbr.vmap: axis_size must be an integer, got float 2.5",
    ),
    "nothing to map over": (
        lambda: fdbr.vmap(model, None)(P, 1.0),
        ValueError,
        "fdbr.vmap: no argument of model has an axis to map over; give in_axes, or axis_size",
    ),
    "out_axes None for what differs": (
        lambda: fdbr.vmap(lambda x: {"y": x}, out_axes=None)(XS),
        ValueError,
        r"fdbr.vmap: out_axes is None for the result at \['y'\] of .*, which differs between",
    ),
    "out_axes that is not there": (
        lambda: fdbr.vmap(lambda x: (x, x), out_axes=(0, -2))(XS),
        ValueError,
        r"fdbr.vmap: out_axes is -2 for the result at \[1\] of .*, which has 1 axes with the batch",
    ),
    "out_axes is no prefix": (
        lambda: fdbr.vmap(lambda x: (x, x), out_axes=[0, 0])(XS),
        ValueError,
        "fdbr.vmap: the out_axes of .* must be an integer, None, or a tree of these that is a",
    ),
    "out_axes is no integer": (
        lambda: fdbr.vmap(lambda x: x, out_axes="0")(XS),
        TypeError,
        "fdbr.vmap: the out_axes of .* must be integers or None, not '0'",
    ),
    "a result that is no array": (
        lambda: fdbr.vmap(lambda x: {"y": x, "f": np.sin})(XS),
        TypeError,
        r"fdbr.vmap: the result at \['f'\] of .* is ufunc and no array; say out_axes=None for it",
    ),
    "an error of an operation": (
        lambda: fdbr.vmap(lambda x: x @ np.ones((3, 4)))(np.ones((5, 2))),
        ValueError,
        "fdbr.ops.matmul",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_argument_and_path(name):
    attempt, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        attempt()
