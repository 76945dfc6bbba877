"""In-place operators on traced arrays: what NumPy gives, or an error; never another answer."""

import copy
import functools
import itertools
import operator
import re
import sys
import textwrap

import numpy as np
import pytest
from sharing import shared

import fdbr
from fdbr import ops
from fdbr.interop import inplace

V = np.array([[1.5, -0.5, 2.0], [0.75, 1.25, -1.75]])
W = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.5]])
Y = np.array([[0.5, 1.5, -1.0], [2.0, 0.25, 1.75]])

OPERATORS = ["+=", "-=", "*=", "/=", "**=", "@="]

# Programs of an array `v`, whose caller has it.  What they return is weighted and added up.
HARMLESS = {
    "a result": "h = v * 2.0; h {op} y; return h",
    "a result, twice": "h = v * 2.0; h {op} y; h {op} y; return h",
    "an exponential, which its derivative needs": "h = np.exp(0.1 * v); h {op} y; return h",
    "a result that was used": "h = v * 2.0; g = h * h; h {op} y; return h, g",
    "its own function": "h = v * 2.0; h += np.tanh(h) + 0.5; h *= h; return h",
    "a product": "h = v @ np.eye(3); h {op} y; return h",
    "a copy": "h = v.copy(); h {op} y; return h, v",
    "NumPy's copy": "h = np.copy(v); h {op} y; return h, v",
    "a shallow copy": "h = copy.copy(v); h {op} y; return h, v",
    "a conversion": "h = v.astype(v.dtype); h {op} y; return h, v",
    "a flat copy": "h = v.flatten().reshape(2, 3); h {op} y; return h, v",
    "a fancy index": "h = v[np.array([0, 1])]; h {op} y; return h, v",
    "a mask": "h = v[np.array([True, True])]; h {op} y; return h, v",
    "a view of a result that is gone": (
        "h = (v * 2.0).reshape(3, 2).reshape(2, 3); h {op} y; return h"
    ),
    "a transpose of a result that is gone": "h = (v.T * 2.0).T; h {op} y; return h",
    "a part of a result that is gone": "h = np.concatenate([v, v * 2.0])[1:3]; h {op} y; return h",
    "heads merged": (
        "a = v.reshape(2, 3, 1).transpose(1, 0, 2); h = a.reshape(2, 3); h {op} y; "
        "return h, a.sum()"
    ),
    "a loop": """
        h = np.zeros((2, 3)) + v
        for i in range(3):
            h {op} y
            h += 0.1 * v
        return h""",
    "a loop from a number": """
        h = 0.0
        for i in range(3):
            h += v * i
        h {op} y
        return h""",
    "a total": """
        total = 0.0
        for row in v:
            for x in row:
                total += x * x
                t = total
                total *= 1.5
        return total + t + v * 1.0""",
    "scalars with other names": (
        "s = v.sum(); t = s; s += 1.0; s *= t; e = v[0, 1]; e += s; return s + t + e + v"
    ),
    "an element of a list": "l = [v * 2.0, v]; l[0] {op} y; return l[0]",
    "an element of a dict": "d = {{'a': v * 2.0}}; d['a'] {op} y; return d['a']",
    "an element of two containers": "d = {{'a': [v * 2.0]}}; d['a'][0] {op} y; return d['a'][0]",
    "an attribute": "o = Box(v * 2.0); o.w {op} y; return o.w",
    "a method": "o = Box(v * 2.0); o.change_{name}(y); o.change_{name}(y); return o.w",
    "a closure": """
        h = v * 2.0
        def step():
            nonlocal h
            h {op} y
        step()
        step()
        return h""",
    "a function of a temporary": """
        def layer(h, b):
            h {op} b
            return h
        return layer(v * 2.0, y)""",
    "its name rebound": """
        def layer(h, b):
            h = h * 2.0
            h {op} b
            return h
        return layer(v, y)""",
    "a generator": """
        def steps():
            h = v * 2.0
            for i in range(3):
                h {op} y
            yield h
        return next(steps())""",
    "values of a generator": """
        found = []
        for h in (v * i for i in range(1, 3)):
            h {op} y
            found.append(h)
        return tuple(found)""",
    "a comprehension": """
        def change(h):
            h {op} y
            return h
        return tuple([change(v * i) for i in range(1, 3)])""",
    "a name that was deleted": "h = v * 2.0; g = h; del g; h {op} y; return h",
    "after locals": "h = v * 2.0; n = len(locals()); h {op} y; return h",
    "its transpose": "h = v @ v.T; h += h.T; return h.sum() + v",
    "itself": "h = v * 2.0; h += h; h *= h; return h",
    "its row": "h = v * 2.0; h += h[0]; h -= h.mean(axis=0); return h",
    "a number": "h = v * 2.0; h {op} 2.0; return h",
    "a list": "h = v * 2.0; h += [1, 2, 3]; return h",
    "a scan": """
        def turn(c, x):
            h = c * x
            h += c
            return h, h.sum()
        c, ys = fdbr.scan(turn, v[0], v)
        return c + v, ys.sum()""",
    "a while": """
        h = v * 1.0
        while h.sum() < 30.0:
            h += np.abs(v)
        return h""",
    "a branch": """
        h = v * 2.0
        if h.sum() > 0:
            h += v
        g = h * 1.0
        for i in range(2):
            if g[0, i] > 0:
                g *= 2.0
        return g""",
    "a branch in a function": """
        def positive(a):
            return a if a.sum() > 0 else -a
        h = v * 2.0
        s = positive(h) * 1.0
        h += v
        return h, s""",
    "a checkpoint": """
        def block(x):
            h = x * 2.0
            h {op} y
            return h
        return fdbr.checkpoint(block)(v)""",
}

SEEN = {
    "the argument": "v {op} y; return v",
    "another name of the argument": "w = v; w {op} y; return v",
    "a name": "h = v * 2.0; g = h; h {op} y; return h, g",
    "an outer name": """
        h = v * 2.0
        def change(a):
            a {op} y
        change(h)
        return h""",
    "an outer name by keyword": """
        h = v * 2.0
        def change(a=None):
            a {op} y
        change(a=h)
        return h""",
    "an outer name by star": """
        h = v * 2.0
        def change(*a):
            a, = a
            a {op} y
        change(*[h])
        return h""",
    "a part": "h = v * 2.0; g = h[:]; g {op} y; return h, g",
    "the whole of a part": "h = v * 2.0; g = h[1:]; h {op} y; return h, g",
    "a part of the argument": "g = v[:]; g {op} y; return v, g",
    "a row": "h = v * 2.0; r = h[0]; r += 1.0; return h, r",
    "rows": """
        h = v * 2.0
        for r in h:
            r -= r.mean()
        return h""",
    "rows of the argument": """
        for r in v:
            r -= r.mean()
        return v""",
    "a list": """
        l = [v * 2.0, v * 3.0]
        for h in l:
            h {op} y
        return l[0], l[1]""",
    "a list's argument": "l = [v]; l[0] {op} y; return l[0], v",
    "a dict": "d = {{'a': v * 2.0}}; h = d['a']; h {op} y; return d['a'], h",
    "values of a dict": """
        d = {{'a': v * 2.0}}
        for k, h in d.items():
            h {op} y
        return d['a']""",
    "a tuple": "t = (v * 2.0,); h, = t; h {op} y; return t[0], h",
    "an element with a name": "l = [v * 2.0]; h = l[0]; l[0] {op} y; return l[0], h",
    "an attribute with a name": "h = v * 2.0; o = Box(h); o.w {op} y; return o.w, h",
    "two objects": "o = Box(v * 2.0); p = Box(o.w); o.w {op} y; return o.w, p.w",
    "a default": """
        h = v * 2.0
        def last(a=h):
            return a
        h {op} y
        return h, last()""",
    "a closure of another name": """
        h = v * 2.0
        g = h
        def last():
            return g
        h {op} y
        return h, last()""",
    "a partial": """
        h = v * 2.0
        last = functools.partial(np.multiply, h)
        h {op} y
        return h, last(1.0)""",
    "a property of views": "h = v * 2.0; o = Box(h); o.view {op} y; return h, o.view",
    "operator.iadd": "h = v * 2.0; operator.{name}(h, y); return h",
    "operator.iadd of an attribute": "o = Box(v * 2.0); operator.{name}(o.w, y); return o.w",
    "the method": "h = v * 2.0; h.__{name}__(y); return h",
    "reduce": "l = [v * 2.0, y]; s = functools.reduce(operator.{name}, l); return l[0], s",
    "a stopped gradient": "h = v * 2.0; s = fdbr.stop_gradient(h); h {op} y; return h, 0.0 * s",
    "a transposed part of a view": "h = v * 2.0; g = h.T[1:]; k = g.T; g += 1.0; return h, k",
    "a view of a view that is gone": (
        "h = v * 2.0; g = h.reshape(6)[1:].reshape(5, 1); g += 1.0; return h"
    ),
    "two views of a result that is gone": (
        "a, b = [g[:] for g in [v * 2.0] for i in range(2)]; a {op} y; return a, b"
    ),
    "a view with a name in the operand": (
        "h = v @ v.T; t = h.T; h += t; return h.sum() + t[0, 1] + v"
    ),
    "a view that an element keeps": "h = v * 2.0; l = [h[0]]; h {op} y; return h, l[0]",
    "a broadcast view": (
        "h = v * 2.0; b = np.broadcast_to(h, (2, 2, 3)); h {op} y; return h, b[0], b[1]"
    ),
    "a view without dimensions": "h = v * 2.0; e = h[0, 1, ...]; e += 1.0; return h",
    "a shape without dimensions": "h = v[:1, :1] * 2.0; e = h.reshape(()); e += 1.0; return h + v",
    "a checkpoint's argument": """
        h = v * 2.0
        def block(x):
            x {op} y
            return x
        return fdbr.checkpoint(block)(h), h""",
    "a scan's carry": """
        def turn(c, x):
            c += x
            return c, c * 1.0
        h = v[0] * 2.0
        c, ys = fdbr.scan(turn, h, v)
        return c, h, ys.sum()""",
    "a scan's rows": """
        def turn(c, x):
            x += c
            return c * 1.0, x.sum()
        h = v * 2.0
        c, ys = fdbr.scan(turn, v[0] * 1.0, h)
        return c, h, ys.sum()""",
}


class Box:
    """An object with an array, methods that change it, and a view of it."""

    def __init__(self, w):
        self.w = w

    @property
    def view(self):
        return self.w[:]

    @view.setter
    def view(self, w):
        assert w.shape == self.w.shape


for _symbol in OPERATORS:
    _name = (
        "i"
        + {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow", "@": "matmul"}[
            _symbol[:-1]
        ]
    )
    exec(
        f"def change(self, y):\n    self.w {_symbol} y\n    self.w {_symbol} y\n"
        f"Box.change_{_name} = change\ndel change"
    )


@functools.cache
def program(text, symbol):
    """The function of an array that a text is, with an operator."""
    name = {
        "+=": "iadd",
        "-=": "isub",
        "*=": "imul",
        "/=": "itruediv",
        "**=": "ipow",
        "@=": "imatmul",
    }
    text = textwrap.dedent(text).strip().replace("; ", "\n").format(op=symbol, name=name[symbol])
    y = {"**=": "2.0", "@=": "M"}.get(symbol, "Y")
    text = re.sub(r"\by\b", y, text)
    scope = {"np": np, "fdbr": fdbr, "copy": copy, "functools": functools, "operator": operator}
    scope |= {"Box": Box, "Y": Y} | {
        "M": np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0], [0.5, 0.0, 2.0]])
    }
    exec("def f(v):\n" + textwrap.indent(text, "    "), scope)
    f = scope["f"]

    def weighted(v):
        out = f(v)
        total = 0.0
        for i, part in enumerate(out if type(out) is tuple else (out,)):
            weights = W if part.shape == W.shape else np.ones(part.shape)
            total = total + (i + 1.0) * (part * weights).sum()
        return total

    def seen(v):  # by the caller
        out = weighted(v)
        return out + (3.0 * v * W).sum()

    return seen


@functools.cache
def numpys(f):
    """The value and gradient of a function of NumPy's arrays."""
    value, slope, h = f(V.copy()), np.zeros_like(V), 1e-6
    for place in np.ndindex(*V.shape):
        step = np.zeros_like(V)
        step[place] = h
        slope[place] = (f(V + step) - f(V - step)) / (2 * h)
    return value, slope


def by_columns(push):
    return np.array([push(np.eye(V.size)[i].reshape(V.shape)) for i in range(V.size)]).reshape(
        V.shape
    )


def by_vmap(f):
    both = fdbr.vmap(f)(np.stack([V, V]))
    return both[0], fdbr.grad(lambda v: fdbr.vmap(f)(ops.stack([v, v]))[1])(V)


def by_linearize(f):
    value, push = fdbr.linearize(f, V)
    return value, by_columns(push)


def by_vjp(f):
    value, pull = fdbr.vjp(f, V)
    return value, pull(1.0)[0]


def by_jit(f):
    """All calls of a jitted function: it writes into its argument at each of them, or at none."""
    jitted = fdbr.jit(f)
    found = []
    for _ in range(4):
        v = V.copy()
        found.append((float(jitted(v)), v.tobytes()))
    assert len(set(found)) == 1
    return found[0][0], None


TRANSFORMS = {
    "grad": lambda f: (f(V.copy()) * 0 + fdbr.value_and_grad(f)(V)[0], fdbr.grad(f)(V)),
    "vjp": by_vjp,
    "jvp": lambda f: (
        fdbr.jvp(f, (V,), (V,))[0],
        by_columns(lambda t: fdbr.jvp(f, (V,), (t,))[1]),
    ),
    "linearize": by_linearize,
    "vmap": by_vmap,
    "jit": by_jit,
    "grad of jit": lambda f: fdbr.value_and_grad(fdbr.jit(f))(V),
    "jit of grad": lambda f: fdbr.jit(fdbr.value_and_grad(f))(V),
    "grad of checkpoint": lambda f: fdbr.value_and_grad(fdbr.checkpoint(f))(V),
    "vmap of grad": lambda f: [
        part[1] for part in fdbr.vmap(fdbr.value_and_grad(f))(np.stack([V, V]))
    ],
    "jvp of grad": lambda f: (
        None,
        fdbr.jvp(fdbr.grad(f), (V,), (V,))[0],
    ),
}

ERRORS = (TypeError, ValueError)


def agree(f, transform):
    """Compare with NumPy; the errors of NumPy are expected of us, and any error of ours will do."""
    try:
        value, slope = numpys(f)
    except ERRORS:
        with pytest.raises(ERRORS):
            TRANSFORMS[transform](f)
        return
    found, gradient = TRANSFORMS[transform](f)
    if found is not None:
        np.testing.assert_allclose(found, value, rtol=1e-9)
    if gradient is not None:
        np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", shared(list(HARMLESS)))
def test_what_nothing_else_sees_is_computed_as_by_numpy(name, transform):
    for symbol in OPERATORS if "{op}" in HARMLESS[name] else OPERATORS[:1]:
        agree(program(HARMLESS[name], symbol), transform)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", SEEN)
def test_what_something_else_sees_is_never_another_answer(name, transform):
    for symbol in OPERATORS if re.search(r"\{op\}|\{name\}", SEEN[name]) else OPERATORS[:1]:
        try:
            agree(program(SEEN[name], symbol), transform)
        except ERRORS as error:
            if not re.search("write x = x|read-only", str(error)):
                raise


@pytest.mark.parametrize("name", SEEN)
def test_what_something_else_sees_is_an_error_under_grad(name):
    with pytest.raises(ERRORS, match=r"write x = x|read-only"):
        fdbr.grad(program(SEEN[name], "+="))(V)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_nothing_else_sees_is_traced_by_jit(name):
    jitted = fdbr.jit(program(HARMLESS[name], "+="))
    jitted(V)
    assert jitted.programs()


def test_steps_that_jit_puts_off_are_no_other_names():
    def f(v):
        h = v * 2.0
        g = np.tanh(h) + h
        h += g
        h *= np.tanh(h)
        return h, g

    v = np.linspace(0.0, 1.0, 600 * 600).reshape(600, 600)  # from 2**18 elements on
    jitted = fdbr.jit(f)
    np.testing.assert_allclose(jitted(v), f(v), rtol=1e-12)
    assert jitted.programs()


# --- views and copies ---------------------------------------------------------------

FROM_AN_ARRAY = """
np.copy(x)
x.copy()
copy.deepcopy(x)
x.flatten()
x.T.flatten()
x.T.copy()
+x
np.positive(x)
x.astype(x.dtype)
x.astype(x.dtype, copy=False)
np.astype(x, x.dtype)
np.astype(x, x.dtype, copy=False)
np.array(x, like=x)
np.asarray(x, like=x)
np.conj(x)
x.conj()
x.real
np.ravel(x)
np.ravel(x, order="F")
x.T.ravel()
x.reshape(4)
x.T.reshape(4)
np.reshape(x, (4,), order="F")
np.reshape(x, (4,), copy=True)
ops.reshape(x, (4,), copy=True)
x[:1, :1].reshape(())
x[0, 0, ...]
x[()]
x.T
x.mT
np.transpose(x)
np.swapaxes(x, 0, 1)
np.moveaxis(x, 0, 1)
np.rollaxis(x, 1)
np.permute_dims(x, (1, 0))
np.linalg.matrix_transpose(x)
ops.matrix_transpose(x)
np.squeeze(x)
np.atleast_1d(x)
np.atleast_2d(x)
np.atleast_3d(x)
np.expand_dims(x, 0)
np.expand_dims(x, (0, 2))
np.flip(x)
np.fliplr(x)
np.flipud(x)
np.rot90(x)
np.rot90(x, 0)
np.rot90(x, 2)
np.real(x)
np.diagonal(x)
np.diag(x)
np.diag(x[0])
np.linalg.diagonal(x)
x.diagonal()[:1]
np.real_if_close(x)
np.split(x, 2)[0]
np.hsplit(x, 2)[1]
np.vsplit(x, 2)[1]
np.array_split(x, 2)[1]
np.unstack(x)[0]
np.broadcast_to(x, (3, 2, 2))
ops.broadcast_to(x, (2, 2))
np.broadcast_arrays(x, np.ones((2, 2)))[0]
np.tile(x, 1)
np.tile(x, (1, 2))
ops.tile(x, (1,))
np.repeat(x, 1)
np.repeat(x, 2)
x.repeat(1)
np.roll(x, 0)
np.concatenate([x])
np.stack([x])[0]
np.vstack([x])
np.block(x)
np.block([[x]])
np.append(x, [])
np.meshgrid(x[0], x[1])[0]
np.meshgrid(x[0])[0]
np.pad(x, 0)
np.delete(x, [], axis=0)
np.trim_zeros(x[0])
np.einsum("ij->ji", x)
np.einsum("ij->ij", x)
np.einsum("ij->i", x)
np.diff(x, n=0)
np.diff(x)
np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)
np.full((3, 2), x[0], like=x)
ops.full((3, 2), x[0])
np.sum(x, axis=())
np.sum(x[:1], axis=0)
np.max(x[:1], axis=0)
np.clip(x, -9, 9)
np.where(True, x, x)
x[:]
x[...]
x[None]
x[0]
x[::-1]
x[[0, 1]]
x[[0, 1], :]
x[np.array([True, True])]
next(iter(x))
np.take(x, [0, 1], axis=0)
np.compress([True, True], x, axis=0)
np.take_along_axis(x, np.zeros((2, 2), int), 0)
x + 0.0
x * 1.0
x**1
np.maximum(x, x)
np.linalg.matrix_power(x, 1)
np.sort(x, axis=0)
np.cumsum(x, axis=0)
fdbr.tree.map(lambda leaf: leaf, x)
ops.conj(x)
ops.real(x)
ops.asarray(x, copy=True)
ops.unstack(x)[0]
np.apply_along_axis(lambda row: row, 0, x)
x[0, 1]
x.sum()
np.sum(x)
np.dot(x[0], x[1])
np.max(x)
"""


@pytest.mark.parametrize("text", FROM_AN_ARRAY.strip().split("\n"))
def test_an_array_is_a_view_a_copy_or_a_scalar_as_in_numpy(text):
    make = eval(f"lambda x: {text}", dict(globals()))
    before = np.arange(1.0, 5.0).reshape(2, 2)
    made = make(before)
    shown = isinstance(made, np.ndarray) and np.shares_memory(made, before)
    fixed = isinstance(made, np.ndarray) and not made.flags.writeable
    expected = "error" if shown or fixed else "written"
    found = []

    def f(x):
        h = x * 1.0
        made = make(h)
        try:
            made += 1.0
            found.append("written")
        except ERRORS:
            found.append("error")
        return (h * 1.0).sum()

    fdbr.grad(f)(before)
    fdbr.jvp(f, (before,), (before,))
    fdbr.vmap(f)(np.stack([before, before]))
    fdbr.vmap(fdbr.grad(f))(np.stack([before, before]))
    assert found == [expected] * len(found)


# --- dtypes, shapes and NumPy's errors ----------------------------------------------

DTYPES = [np.float32, np.float64, np.complex64, np.int32, np.uint8, np.bool_]
OTHERS = [2, 2.5, 300, -1, 1j, True, [1, 2, 3], None, "a"]
SHAPES = [(), (3,), (1,), (2, 3), (3, 3), (0,), (4,)]


def outcome(run):
    """What an in-place operator gives: dtype, shape and elements, or the class of its error."""
    try:
        out = np.asarray(run())
    except (TypeError, ValueError, OverflowError) as error:
        kinds = (TypeError, OverflowError, ValueError)
        return next(kind for kind in kinds if isinstance(error, kind))
    return out.dtype.name, out.shape, out.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("symbol", inplace._UFUNCS)
def test_an_array_keeps_its_dtype_and_shape_and_numpys_errors_come(symbol):
    scope: dict = {}
    exec(f"def change(x, y):\n    h = x.copy()\n    h {symbol} y\n    return h", scope)
    change = scope["change"]
    others = [np.ones(shape, dtype) * dtype(2) for dtype in DTYPES for shape in SHAPES] + OTHERS
    xs = [np.ones(shape, dtype) for dtype in DTYPES for shape in [(3,), (3, 3), (1, 3)]]
    for x, y in itertools.product(xs, others):
        expected = outcome(lambda: change(x, y))  # noqa: B023
        found = outcome(lambda: fdbr.vmap(lambda x: change(x, y))(x[None])[0])  # noqa: B023
        if type(expected) is type and (symbol in ("@=", "**=") or not fits(x, y)):
            assert type(found) is type, (x, y)  # there may be two reasons, and either comes first
        else:
            assert found == expected, (x, y)


def fits(x, y):
    try:
        return np.broadcast_shapes(x.shape, np.shape(y)) == x.shape
    except ValueError:
        return False


def test_the_error_of_a_dtype_that_does_not_fit_is_numpys():
    def f(x):
        n = x.astype(int)
        n += 0.5 * x
        return n

    for run in (f, fdbr.vmap(f), fdbr.jit(f)):
        with pytest.raises(np._core._exceptions._UFuncOutputCastingError, match="Cannot cast"):
            run(V.copy())


def test_a_scalar_is_always_rebound():
    def f(x):
        s, t, u = x, x * 2.0, (x,)
        s *= 3.0
        x += 1.0
        for v in u:
            v -= t
        return s * x * t + u[0]

    expected = f(0.7)
    assert fdbr.value_and_grad(f)(0.7)[0] == pytest.approx(expected)
    assert fdbr.vmap(f)(np.array([0.7, 0.7]))[1] == pytest.approx(expected)
    assert fdbr.grad(lambda v: f(v[0]))(np.array([0.7]))[0] == pytest.approx(
        (f(0.7 + 1e-6) - f(0.7 - 1e-6)) / 2e-6
    )
    with pytest.raises(TypeError, match=r"an argument of .*f, whose caller"):
        fdbr.grad(f)(np.array(0.7))


# --- what else writes ---------------------------------------------------------------

WRITES = """
v += 1
v[0] += 1
v[...] = v + 1
np.add(v, 1, out=v)
v.fill(v[0, 0] + 1)
v.sort(axis=0); v[...] = v[::-1]
w = v[1:]; w *= 3
d = {'a': v}; d['a'] += 1
np.copyto(v, v + 1)
v.real = v + 1
np.put(v, 0, v[0, 0] + 1)
v.put(0, v[0, 0] + 1)
np.putmask(v, v > 0, 0.5 * v)
np.add.at(v, [0], 1.0)
np.clip(v, 0.0, 0.9 * v[0, 0], out=v)
np.place(v, v > 0, [v[0, 0] * 2])
np.fill_diagonal(v, v[0, 0] + 1)
"""
ALL_WRITES = WRITES.strip().split("\n")


def writing(text):
    scope = {"np": np}
    lines = "\n    ".join(text.split("; "))
    exec(f"def f(v):\n    {lines}\n    return np.tanh(np.sin(v) * v).sum()", scope)
    return scope["f"]


@pytest.mark.parametrize("text", ALL_WRITES)
def test_a_jitted_function_writes_to_its_argument_at_every_call(text):
    f = writing(text)
    jitted, v = fdbr.jit(f), np.linspace(0.1, 2.0, 1600).reshape(40, 40)
    w = v.copy()
    for _ in range(150):
        assert jitted(v) == pytest.approx(f(w))
        assert np.array_equal(v, w)
        v, w = v * 0.9 + 0.1, w * 0.9 + 0.1


@pytest.mark.parametrize("text", ALL_WRITES)
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "grad of jit"])
def test_a_traced_function_that_writes_to_its_argument_is_an_error(text, transform):
    with pytest.raises((*ERRORS, AttributeError), match=r"[Ww]rit"):
        TRANSFORMS[transform](writing(text))


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "vmap", "grad of jit"])
def test_a_custom_function_cannot_write_to_the_arrays_of_the_tape(transform):
    @fdbr.custom_vjp
    def square(x):
        x += 1.0
        return x * x

    @fdbr.custom_vjp
    def twice(x):
        return 2.0 * x

    def back(kept, ct):
        ct *= 2.0
        return (ct,)

    square.defvjp(lambda x: (square(x), x), lambda x, ct: (2.0 * x * ct,))
    twice.defvjp(lambda x: (2.0 * x, None), back)

    def f(v):
        h = np.exp(v)
        return (3.0 * h).sum() + square(h).sum()

    with pytest.raises(ERRORS, match=r"read-only|write x = x"):
        TRANSFORMS[transform](f)
    with pytest.raises(ERRORS, match=r"read-only|write x = x"):
        fdbr.grad(lambda v: (twice(v) + twice(v) * 1.0 + 3.0 * v).sum())(V)


# --- how references are counted -----------------------------------------------------


def test_where_parameters_borrow_references_the_callers_names_are_searched(monkeypatch):
    """As in Python 3.14, where such a parameter adds nothing to the count."""
    known = inplace._KNOWN
    monkeypatch.setattr(inplace, "_BORROWS", True)
    for name in HARMLESS:
        agree(program(HARMLESS[name], "+="), "grad")
    monkeypatch.setattr(inplace, "_KNOWN", known | {"local": known["local"] + 1})
    for name in ("an outer name", "an outer name by keyword"):
        with pytest.raises(TypeError, match="another name, a container, or a caller"):
            fdbr.grad(program(SEEN[name], "+="))(V)


def test_where_references_cannot_be_counted_every_array_may_be_seen(monkeypatch):
    monkeypatch.setattr(inplace, "_KNOWN", dict.fromkeys(inplace._KNOWN, -1))
    with pytest.raises(TypeError, match="something else"):
        fdbr.grad(program(HARMLESS["a result"], "+="))(V)


def test_a_debugger_does_not_change_what_an_operator_does():
    """Its trace function is given dicts of all variables, which stay with the frames."""
    f = program(HARMLESS["a loop"], "+=")
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: lambda frame, event, arg: None)
    try:
        found = fdbr.grad(f)(V)
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(found, fdbr.grad(f)(V))
