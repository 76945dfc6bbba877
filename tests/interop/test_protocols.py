"""Whatever is asked of a traced value, it answers as the plain value would, or refuses.

The walk goes through every attribute and method that arrays, NumPy's scalars and Python's numbers
have, and through what Python's built-in functions and the modules that convert numbers ask for.
No answer may differ from the plain one in silence, nor be cut off from its derivative.
"""

import array
import copy
import ctypes
import decimal
import fractions
import functools
import itertools
import json
import math
import numbers
import operator
import pickle
import statistics
import struct
import types
import warnings
import weakref
from collections.abc import Hashable
from multiprocessing.reduction import ForkingPickler

import attrs
import numpy as np
import pytest
from sharing import sampled

import fdbr
from fdbr import ops
from fdbr.compiler.capture.tracing import capture
from fdbr.core.tracer_methods import ufuncs as array_ufuncs

VALUES = {
    "array": np.array([-2.2375, 1.7125]),
    "matrix": np.array([[1.7125, -0.2625], [0.6125, 2.2125]]),
    "0-d array": np.array(1.7125),
    "scalar": np.float64(1.7125),
    "number": 1.7125,
    "float32": np.array([-2.2375, 1.7125], np.float32),
}
OTHERS = {"integers": np.array([-2, 3]), "truth values": np.array([False, True])}
ARGUMENTS = [
    *[(), (1,), (0,), (2.0,), (-1,), (None,), ("text",), ((1.0, 2.0),), ([1, 2],), (range(2),)],
    *[(0, 1), (np.array([0.5, 4.0]),), (np.array([1.0, None]),), (np.array(["a", "b"]),)],
    *[(np.float32(0.5),), (object(),), (slice(1),), (...,), (np.array([True, False]),), (True,)],
]

for argument in [argument for arguments in ARGUMENTS for argument in arguments]:
    if isinstance(argument, np.ndarray):
        argument.setflags(write=False)

# What is not asked: what makes text (see below), what is about the object and not about its value,
# what would write or print, and what is a number's own way to see its bits.
LEFT_OUT = {
    *("__class__ __dir__ __doc__ __format__ __getattribute__ __getnewargs__ __hash__").split(),
    *("__init__ __init_subclass__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__").split(),
    *("__delattr__ __getstate__ __setstate__ __sizeof__ __str__ __subclasshook__").split(),
    "dump",
    "dumps",
    "tofile",
    *("__class_getitem__ __array_finalize__ __array_priority__ __array_wrap__ __iter__").split(),
    *("__array_function__ __array_ufunc__ __array_namespace__ __array__ device flat at").split(),
}
NAMES = sorted(
    {name for kind in (np.ndarray, np.float64, float, int) for name in dir(kind)} - LEFT_OUT
)


def ask(name, arguments, x):
    answer = getattr(x, name)
    return answer(*arguments) if callable(answer) else answer


BUILT_IN = {
    "abs": abs,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "divmod": lambda x: divmod(x, 2),
    "rdivmod": lambda x: divmod(5.0, x),
    "round": round,
    "round to 1": lambda x: round(x, 1),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "sum": lambda x: sum([x, x]),
    "max": lambda x: max(x, 1.0),
    "min of elements": lambda x: min(x),
    "sorted": lambda x: sorted([x, 1.0]),
    "list": list,
    "reversed": lambda x: list(reversed(x)),
    "len": len,
    "in": lambda x: 1.7125 in x,
    "in a list": lambda x: x in [1.0, 1.7125],
    "index": lambda x: [1.0, 1.7125].index(x),
    "count": lambda x: [1.0, 1.7125, 1.7125].count(x),
    "index of a list": lambda x: [1.0, 2.0, 3.0][x],
    "range": lambda x: list(range(x)),
    "pow with modulus": lambda x: pow(x, 2, 3),
    "copy": copy.copy,
    "deepcopy": lambda x: copy.deepcopy({"a": [x]})["a"][0],
    "concat": lambda x: operator.concat([x], [x]),
    "math.sin": math.sin,
    "math.fsum": lambda x: math.fsum([x]),
    "math.isclose": lambda x: math.isclose(x, 1.7125),
    "math.prod": lambda x: math.prod([x, x]),
    "json": lambda x: float(json.dumps(x)),
    "text and back": lambda x: float(str(x)),
    "array.array": lambda x: array.array("d", [x])[0],
    "struct": lambda x: struct.unpack("d", struct.pack("d", x))[0],
    "ctypes": lambda x: ctypes.c_double(x).value,
    "statistics": lambda x: statistics.mean([x, x]),
    "Fraction": lambda x: float(fractions.Fraction(x)),
    "Decimal": lambda x: float(decimal.Decimal(x)),
    "times a Fraction": lambda x: x * fractions.Fraction(1, 2),
    "a Fraction times": lambda x: fractions.Fraction(1, 2) * x,
    "tuple times": lambda x: (1.0, 2.0) * x,
    "list plus": lambda x: operator.add([1.0, 2.0], x),
    "range minus": lambda x: range(2) - x,
    "tuple at": lambda x: (1.0, 2.0) @ x,
    "tuple less": lambda x: (1.0, 2.0) < x,
    "None equals": lambda x: operator.eq(None, x),
    "texts equal": lambda x: np.array(["a", "b"]) == x,
    "np.add of a tuple": lambda x: np.add(x, (1.0, 2.0)),
    "np.add to a list": lambda x: np.add([1.0, 2.0], x),
    "np.float64": np.float64,
    "np.float32": np.float32,
    "np.int64": np.int64,
    "np.bool_": np.bool_,
    "np.asarray": np.asarray,
    "np.asarray with dtype": lambda x: np.asarray(x, dtype=np.float32),
    "np.array of a list": lambda x: np.array([x, x]),
    "np.array of objects": lambda x: np.array([x, x], dtype=object).astype(float),
    "np.fromiter": lambda x: np.fromiter([x], float),
    "np.full": lambda x: np.full(2, x),
    "np.matrix": lambda x: np.asarray(np.matrix(x)),
    "memoryview": lambda x: np.asarray(memoryview(x)),
    "isinstance of array": lambda x: isinstance(x, np.ndarray),
    "isinstance of float": lambda x: isinstance(x, float),
    "isinstance of np.float64": lambda x: isinstance(x, np.float64),
    "isinstance of np.generic": lambda x: isinstance(x, np.generic),
    "np.isscalar": np.isscalar,
    "np.iterable": np.iterable,
}


def filled(x):
    out = np.zeros(2)
    out[0] = x
    return out


def filled_all(x):
    out = np.zeros(2)
    out[:] = x
    return out


def by_object_array(x):
    held = np.empty(1, dtype=object)
    held[0] = x
    return (held + x)[0]


def by_class(x):
    match x:
        case float():
            return x * 2.0
        case np.ndarray():
            return x * 3.0
    return None


def by_single_dispatch(x):
    @functools.singledispatch
    def f(x):
        return None

    f.register(float, lambda x: x * 2.0)
    f.register(np.ndarray, lambda x: x * 3.0)
    return f(x)


BUILT_IN |= {f.__name__: f for f in (filled, filled_all, by_object_array, by_class)}
BUILT_IN |= {by_single_dispatch.__name__: by_single_dispatch}


def outcome(f, *args):
    """What a function gives, as arrays; `None` where it raises an error, or nothing numeric."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = f(*map(copy.copy, args))  # for some of the methods write to their array
    except Exception:
        return None
    leaves = fdbr.tree.leaves(found)
    numeric = np.ndarray | np.generic | int | float | complex
    if not leaves or not all(isinstance(leaf, numeric) for leaf in leaves):
        return None
    return [np.asarray(leaf) for leaf in leaves]


def agree(found, expected, where):
    assert len(found) == len(expected), where
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape, where
        if other.dtype.kind == "c" and one.dtype.kind == "f":  # numbers follow NumPy's rules here
            continue
        if other.dtype.kind in "OU":
            assert repr(one) == repr(other), where
            continue
        assert np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True), (where, one, other)


def under_grad(f, x, plain, where):
    """The value, and a derivative wherever the plain function has one."""
    pullback = None

    def run(x):
        nonlocal pullback
        value, pullback = fdbr.vjp(f, x)
        return value

    found = outcome(run, x)
    if found is None or plain is None:
        return
    agree(found, plain, where)
    inexact: list = [np.ones(p.shape, p.dtype)[()] if p.dtype.kind == "f" else None for p in found]
    with np.errstate(all="ignore"):
        structure = fdbr.tree.structure(f(copy.copy(x)))
        (slope,) = pullback(fdbr.tree.unflatten(structure, inexact))
    h = 1e-3 if np.asarray(x).dtype == np.float32 else 1e-5
    numerical = np.zeros(np.shape(x))
    for place in np.ndindex(np.shape(x)):
        step = np.zeros(np.shape(x), np.asarray(x).dtype)
        step[place] = h
        above, below = (outcome(f, type_of(x, x + h)) for h in (step, -step))
        if above is None or below is None or [a.shape for a in above] != [b.shape for b in below]:
            return
        with np.errstate(invalid="ignore"):
            pairs = zip(above, below, strict=True)
            change = [np.sum(a - b, dtype=float) for a, b in pairs if a.dtype.kind == "f"]
        numerical[place] = sum(change) / (2 * h)
    if np.isfinite(numerical).all() and all(p.dtype.kind != "c" for p in plain):
        assert np.allclose(slope, numerical, rtol=1e-2, atol=1e-2), (where, slope, numerical)


def type_of(x, value):
    if type(x) is np.ndarray:
        return np.asarray(value, x.dtype)
    return type(x)(value)


def under_jvp(f, x, plain, where):
    found = outcome(lambda x: fdbr.jvp(f, (x,), (x,)), x)
    if found is not None and plain is not None:
        agree(found[: len(plain)], plain, where)


def under_vmap(f, x, plain, where):
    """Each example as by itself; that of a batch of numbers is a scalar of NumPy."""
    batch = np.stack([x, x])
    batch.setflags(write=False)
    found = outcome(fdbr.vmap(f), batch)
    plain = outcome(f, batch[0])
    if found is not None and plain is not None:
        agree([one[1] for one in found], plain, where)


def under_jit(f, x, plain, where):
    found = outcome(fdbr.jit(f), x)
    if found is not None and plain is not None:
        agree(found, plain, where)


WALKS = {"grad": under_grad, "jvp": under_jvp, "vmap": under_vmap}


@pytest.mark.parametrize(
    ("kind", "transformation"), sampled(list(itertools.product(VALUES, WALKS)), 0, parts=2)
)
def test_every_method_answers_as_that_of_the_plain_value_or_refuses(kind, transformation):
    x = VALUES[kind]
    for name in NAMES:
        for arguments in ARGUMENTS:
            f = functools.partial(ask, name, arguments)
            WALKS[transformation](f, x, outcome(f, x), (transformation, kind, name, arguments))


@pytest.mark.parametrize("kind", OTHERS)
def test_so_do_those_of_integers_and_truth_values_in_a_batch(kind):
    x = OTHERS[kind]
    for name in NAMES:
        for arguments in ARGUMENTS:
            f = functools.partial(ask, name, arguments)
            under_vmap(f, x, outcome(f, x), (kind, name, arguments))


@pytest.mark.parametrize("kind", VALUES | OTHERS)
def test_so_do_built_in_functions_under_every_transformation(kind):
    x = (VALUES | OTHERS)[kind]
    walks = [under_vmap, under_jit] if kind in OTHERS else [*WALKS.values(), under_jit]
    for name, f in BUILT_IN.items():
        for walk in walks:
            walk(f, x, outcome(f, x), (walk.__name__, kind, name))


@pytest.mark.parametrize("kind", ["array", "number"])
def test_so_do_methods_under_jit(kind):
    x = VALUES[kind]
    for name in NAMES:
        for arguments in ARGUMENTS[:13:3]:
            f = functools.partial(ask, name, arguments)
            under_jit(f, x, outcome(f, x), ("jit", kind, name, arguments))


# --- copies -------------------------------------------------------------------------


@fdbr.frozen
class Model:
    weight: object
    inner: object = None


def held(x):
    return {
        "itself": (x, lambda c: c),
        "list": ([x, [x]], lambda c: c[1][0]),
        "dict": ({"a": (x,)}, lambda c: c["a"][0]),
        "frozen": (Model(x, Model(x)), lambda c: c.inner.weight),
        "attrs": (attrs.make_class("A", ["x"])(x), lambda c: c.x),
        "namespace": (types.SimpleNamespace(x=x), lambda c: c.x),
    }


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda v: copy.deepcopy([v, v])[1]])
@pytest.mark.parametrize("where", ["itself", "list", "dict", "frozen", "attrs", "namespace"])
def test_a_copy_of_a_traced_value_is_that_value(make, where):
    def f(x):
        value, find = held(x * x)[where]
        return ops.sum(find(make(value)) * x)

    x = np.array([1.5, 2.0])
    assert np.allclose(fdbr.grad(f)(x), 3 * x**2)
    assert np.allclose(fdbr.jvp(f, (x,), (x,))[1], np.sum(3 * x**3))
    assert np.allclose(fdbr.vmap(f)(np.stack([x, 2 * x])), [np.sum(x**3), np.sum(8 * x**3)])
    assert np.allclose(fdbr.vmap(fdbr.grad(f))(np.stack([x, 2 * x])), [3 * x**2, 12 * x**2])
    jitted = fdbr.jit(f)
    assert np.allclose([jitted(x), jitted(2 * x)], [np.sum(x**3), np.sum(8 * x**3)])
    assert np.allclose(fdbr.hessian(f)(x), np.diag(6 * x))


@pytest.mark.parametrize(
    "store",
    [
        pickle.dumps,
        lambda x: pickle.dumps({"a": [x]}, protocol=2),
        lambda x: pickle.dumps(Model(x)),
        lambda x: ForkingPickler.dumps((x,)),
        lambda x: x.__reduce_ex__(2),
        lambda x: x.__reduce__(),
    ],
)
def test_pickling_a_traced_value_is_an_error_that_says_what_to_do(store):
    def capturing(f):  # `jit` runs what calls multiprocessing without a trace
        return lambda x: capture(lambda xs: [f(*xs)], f, [x])

    for transform in (fdbr.grad, fdbr.vmap, capturing, lambda f: lambda x: fdbr.jvp(f, (x,), (x,))):
        with pytest.raises(TypeError, match=r"pickling of <traced .*Return it"):
            transform(lambda x: store(x) and ops.sum(x))(np.ones(2))


def test_a_traced_value_can_be_referred_to_weakly_and_has_no_hash():
    def f(x):
        y = x * x
        reference = weakref.ref(y)
        assert reference() is y
        with pytest.raises(TypeError, match="unhashable"):
            hash(y)
        out = ops.sum(y)
        del y
        assert reference() is None
        return out

    fdbr.grad(f)(np.ones(2))
    fdbr.vmap(f)(np.ones((2, 2)))


def test_traced_values_that_are_returned_in_an_array_of_objects_are_found():
    def f(x):
        out = np.empty(1, dtype=object)
        out[0] = x * x
        return out

    x = np.array(2.0)
    for run in (lambda: fdbr.vjp(f, x), lambda: fdbr.jvp(f, (x,), (x,)), lambda: fdbr.jit(f)(x)):
        with pytest.raises(TypeError, match=r"in an array of objects.*ops\.stack"):
            run()
    with pytest.raises((TypeError, fdbr.EscapedTracerError)):
        fdbr.grad(lambda x: (f(x) + x)[0])(x)


# --- classes ------------------------------------------------------------------------


def test_isinstance_answers_as_for_the_plain_value_under_every_transformation():
    kinds = (float, int, complex, np.float64, np.float32, np.integer, np.generic, np.ndarray)
    kinds += (numbers.Number, numbers.Real, numbers.Complex, numbers.Integral, Hashable)
    seen = []

    def look(x):
        seen.append([isinstance(x, kind) for kind in kinds])
        return ops.sum(x)

    for x in (*VALUES.values(), np.float32(1.5)):
        look(x)
        fdbr.grad(look)(x)
        fdbr.jvp(look, (x,), (x,))
        fdbr.jit(look)(x)
        fdbr.vmap(look, in_axes=None, axis_size=2, out_axes=None)(x)
        assert all(one == seen[0] for one in seen), (x, seen)
        seen.clear()
    for batch in (np.ones((2, 3)), np.ones(2), np.arange(2), np.ones((2, 1, 1), np.float32)):
        look(batch[0])
        fdbr.vmap(look)(batch)
        if batch.dtype.kind == "f":
            fdbr.vmap(fdbr.grad(look))(batch)
            fdbr.grad(lambda b: ops.sum(fdbr.vmap(look)(b)))(batch)
        assert all(one == seen[0] for one in seen), (batch, seen)
        seen.clear()


def test_validators_of_attrs_take_traced_values_for_what_they_are():
    @fdbr.frozen
    class Weights:
        w: object = attrs.field(validator=attrs.validators.instance_of(np.ndarray))
        scale: object = attrs.field(validator=attrs.validators.instance_of(float))

    def f(w, scale):
        weights = Weights(w, scale)
        return ops.sum(weights.w * weights.scale)

    assert np.allclose(fdbr.grad(f, argnums=1)(np.ones(3), 2.0), 3.0)
    assert np.allclose(fdbr.jit(f)(np.ones(3), 2.0), 6.0)


def test_traced_values_of_other_array_modules_keep_their_own_class(xp):
    """CuPy's operators would look for the memory of what says that it is one of its arrays."""
    x = xp.asarray([1.0, 2.0])
    seen = []
    fdbr.grad(lambda x: seen.append(isinstance(x, np.ndarray)) or ops.sum(x * x))(x)
    assert seen == [xp is np]


# --- sequences as operands ----------------------------------------------------------

PAIRS = {
    op.primitive.name: op
    for ufunc, op in array_ufuncs.items()
    if ufunc.nin == 2 and ufunc.signature is None and hasattr(op, "primitive")
}


@pytest.mark.parametrize("op", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("sequence", [[1, 2], (3, 1), [[1], [2]]], ids=str)
def test_a_sequence_beside_a_number_of_a_batch_is_an_array(op, sequence):
    """Its axes are not taken for those of the batch, which has as many examples."""
    for dtype in (float, int, bool):
        batch = np.array([1, 3], dtype)
        for f in (lambda x: op(x, sequence), lambda x: op(sequence, x)):
            try:
                expected = np.stack([f(x) for x in batch])
            except (TypeError, ValueError):  # which has no such dtype, or no such power
                continue
            assert np.allclose(fdbr.vmap(f)(batch), expected)


def test_so_it_is_for_other_functions_of_several_arrays():
    batch = np.array([1.0, 2.0])
    for f in (
        lambda x: np.where(x > 1, [1.0, 5.0], x),
        lambda x: np.clip(x, [0.0, 2.0], [1.0, 3.0]),
        lambda x: ops.where([True, False], x, 0.0),
        lambda x: np.maximum([1.5, 0.5], x),
        lambda x: np.dot(x, [1.0, 2.0]),
        lambda x: np.outer(x, [1.0, 2.0]),
        lambda x: np.interp(x, [0.0, 4.0], [1.0, 2.0]),
    ):
        assert np.allclose(fdbr.vmap(f)(batch), np.stack([f(x) for x in batch]))


# --- arrays that are none -----------------------------------------------------------


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NumPy's, of the class itself
    UNUSUAL = [np.matrix([[1.0, 2.0]]), np.ma.masked_array([1.0, 2.0], [0, 1])]


@pytest.mark.parametrize("other", UNUSUAL)
def test_matrices_and_masked_arrays_are_refused_for_their_operators_mean_other_things(other):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    uses = (lambda x: x * other, lambda x: other * x, lambda x: np.multiply(x, other))
    for use in uses:
        for run in (fdbr.grad, fdbr.vmap, lambda f: lambda x: fdbr.jvp(f, (x,), (x,))):
            with pytest.raises((TypeError, AttributeError)):
                run(lambda x, use=use: ops.sum(use(x)))(x)
    for run in (fdbr.grad(ops.sum), lambda x: fdbr.vjp(ops.sin, x), fdbr.vmap(ops.sin)):
        with pytest.raises(TypeError, match=r"fdbr\.\w+: a \w+ is no plain array"):
            run(other)
    assert type(fdbr.jit(lambda x: x * 2.0)(other)) is type(other)


@pytest.mark.parametrize("dtype", [str, "U5", object, "S3", "M8[s]"])
def test_traced_values_become_no_texts_and_no_objects(dtype):
    for run in (fdbr.grad, fdbr.vmap, fdbr.jit):
        with pytest.raises(TypeError, match="strings and objects"):
            run(lambda x: ops.sum(x.astype(dtype).astype(float) * x))(np.ones(2))
