"""In-place operators on traced arrays: what NumPy gives, or an error; never another answer."""

import copy
import functools
import itertools
import operator
import re
import textwrap
import threading

import numpy as np
import pytest

import fdbr
from fdbr import ops

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
    "a view of a result that is gone": "h = (v * 2.0).reshape(3, 2).reshape(2, 3); h {op} y; return h",
    "a transpose of a result that is gone": "h = (v.T * 2.0).T; h {op} y; return h",
    "a part of a result that is gone": "h = np.concatenate([v, v * 2.0])[1:3]; h {op} y; return h",
    "heads merged": "a = v.reshape(2, 3, 1).transpose(1, 0, 2); h = a.reshape(2, 3); h {op} y; return h, a.sum()",
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
    "scalars with other names": "s = v.sum(); t = s; s += 1.0; s *= t; e = v[0, 1]; e += s; return s + t + e + v",
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
        del g
        h {op} y
        return h, last""".replace(", last", ""),
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
    "a view of a view that is gone": "h = v * 2.0; g = h.reshape(6)[1:].reshape(5, 1); g += 1.0; return h",
    "two views of a result that is gone": "a, b = [g[:] for g in [v * 2.0] for i in range(2)]; a {op} y; return a, b",
    "a view with a name in the operand": "h = v @ v.T; t = h.T; h += t; return h.sum() + t[0, 1] + v",
    "a view that an element keeps": "h = v * 2.0; l = [h[0]]; h {op} y; return h, l[0]",
    "a broadcast view": "h = v * 2.0; b = np.broadcast_to(h, (2, 2, 3)); h {op} y; return h, b[0], b[1]",
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
    _name = "i" + {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow", "@": "matmul"}[
        _symbol[:-1]
    ]
    exec(
        f"def change(self, y):\n    self.w {_symbol} y\n    self.w {_symbol} y\n"
        f"Box.change_{_name} = change\ndel change"
    )


def program(text, symbol):
    """The function of an array that a text is, with an operator."""
    name = {"+=": "iadd", "-=": "isub", "*=": "imul", "/=": "itruediv", "**=": "ipow", "@=": "imatmul"}
    text = textwrap.dedent(text).strip().replace("; ", "\n").format(op=symbol, name=name[symbol])
    y = {"**=": "2.0", "@=": "M"}.get(symbol, "Y")
    text = re.sub(r"\by\b", y, text)
    scope = dict(globals()) | {"M": np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0], [0.5, 0.0, 2.0]])}
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


def numpys(f):
    """The value and gradient of a function of NumPy's arrays."""
    value, slope, h = f(V.copy()), np.zeros_like(V), 1e-6
    for place in np.ndindex(*V.shape):
        step = np.zeros_like(V)
        step[place] = h
        slope[place] = (f(V + step) - f(V - step)) / (2 * h)
    return value, slope


def by_columns(push):
    return np.array(
        [push(np.eye(V.size)[i].reshape(V.shape)) for i in range(V.size)]
    ).reshape(V.shape)


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
    """All calls of a jitted function, which writes into its argument at each of them or at none."""
    jitted = fdbr.jit(f, reproducible=True)
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
    "grad of jit": lambda f: fdbr.value_and_grad(fdbr.jit(f, reproducible=True))(V),
    "jit of grad": lambda f: fdbr.jit(fdbr.value_and_grad(f), reproducible=True)(V),
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
    except ERRORS as error:
        with pytest.raises(ERRORS):
            TRANSFORMS[transform](f)
        return
    found, gradient = TRANSFORMS[transform](f)
    if found is not None:
        np.testing.assert_allclose(found, value, rtol=1e-9)
    if gradient is not None:
        np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", HARMLESS)
def test_what_nothing_else_sees_is_computed_as_by_numpy(name, transform):
    for symbol in OPERATORS if "{op}" in HARMLESS[name] else OPERATORS[:1]:
        agree(program(HARMLESS[name], symbol), transform)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", SEEN)
def test_what_something_else_sees_is_never_another_answer(name, transform):
    for symbol in OPERATORS if "{op}" in SEEN[name] or "{name}" in SEEN[name] else OPERATORS[:1]:
        try:
            agree(program(SEEN[name], symbol), transform)
        except ERRORS as error:
            assert "write x = x" in str(error) or "read-only" in str(error)
