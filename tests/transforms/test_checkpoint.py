"""checkpoint: the same results with less memory, whatever is done with the function."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, random, tree
from fdbr.testing import assert_allclose

X = np.array([[0.4, -1.3, 0.8], [1.1, 0.2, -0.4]])
T = np.array([[1.0, 0.5, -2.0], [0.3, -0.7, 0.9]])


@fdbr.frozen
class Layer:
    weight: object
    bias: object
    seen: object = fdbr.buffer(default=None)
    power: int = fdbr.static(default=2)

    def __call__(self, x):
        return np.tanh(x @ self.weight + self.bias) ** self.power


LAYER = Layer(np.linspace(-1, 1, 9).reshape(3, 3), np.array([0.1, -0.2, 0.3]), np.ones(2))

# Functions of X, of which each element of the result depends on many of the argument.
FUNCTIONS = {
    "elementwise": lambda x: np.sin(x) * np.exp(-x) / (2 + np.cos(x)),
    "mixing": lambda x: np.tanh(x @ x.T) @ x,
    "softmax": lambda x: ops.softmax(x * x[::-1], axis=0) - x.mean(),
    "indexing": lambda x: x[:, [0, 0, 2]] * ops.at(x)[0, 1:].set(x[1, :2]),
    "branching": lambda x: x**2 if x.sum() > 0 else np.sin(x),
    "looping": lambda x: functools.reduce(lambda y, n: y * x + n, range(4), x),
    "a layer": lambda x: LAYER(x),
    "with a gradient inside": lambda x: fdbr.grad(lambda y: ops.sum(np.sin(y * x) * y))(x),
    "with a Jacobian inside": lambda x: fdbr.jacrev(lambda y: np.sin(y) * y[0] * x)(x).sum((2, 3)),
    "with a batch inside": lambda x: fdbr.vmap(lambda row: row * row.sum())(x),
    "with a checkpoint inside": lambda x: fdbr.checkpoint(np.sin)(x * fdbr.checkpoint(np.exp)(x)),
    "constant": lambda x: np.ones((2, 3)),
    "the argument": lambda x: x,
}


def scalar(f):
    return lambda x: ops.sum(np.sin(f(x)) * T)


# What is done with a function; each must give the same with a checkpoint, to the last bit ...
USES = {
    "value": lambda f: f(X),
    "grad": lambda f: fdbr.grad(scalar(f))(X),
    "value_and_grad": lambda f: fdbr.value_and_grad(scalar(f))(X),
    "vjp": lambda f: fdbr.vjp(f, X)[1](T),
    "vjp, called twice": lambda f: [fdbr.vjp(f, X)[1](ct) for ct in (T, X)],
    "jvp": lambda f: fdbr.jvp(f, (X,), (T,)),
    "linearize": lambda f: fdbr.linearize(f, X)[1](T),
    "jacfwd": lambda f: fdbr.jacfwd(f)(X),
    "jacrev": lambda f: fdbr.jacrev(f)(X),
    "hessian": lambda f: fdbr.hessian(scalar(f))(X),
    "hvp": lambda f: fdbr.hvp(scalar(f), (X,), (T,)),
    "vmap": lambda f: fdbr.vmap(f)(np.stack([X, T, X - T])),
    "vmap of grad": lambda f: fdbr.vmap(fdbr.grad(scalar(f)))(np.stack([X, T, X - T])),
    "grad of vmap": lambda f: fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x) * T))(np.stack([X, T])),
    "vmap of hvp": lambda f: fdbr.vmap(lambda x: fdbr.hvp(scalar(f), (x,), (T,)))(np.stack([X, T])),
    "jvp of vmap of grad": lambda f: fdbr.jvp(
        fdbr.vmap(fdbr.grad(scalar(f))), (np.stack([X, T]),), (np.stack([T, X]),)
    ),
    "composed with itself": lambda f: fdbr.grad(scalar(lambda x: f(f(x))))(X),
}
# ... but for these: reverse mode over a backward pass that ran the function again, and a function
# whose argument is used outside of it too, sum the same terms in another order.
SUMS = {
    "grad of grad": lambda f: fdbr.grad(lambda x: (fdbr.grad(scalar(f))(x) * T).sum())(X),
    "grad of jvp": lambda f: fdbr.grad(lambda x: ops.sum(fdbr.jvp(f, (x,), (T,))[1] * x))(X),
    "three gradients": lambda f: fdbr.grad(lambda x: fdbr.hvp(scalar(f), (x,), (T,)).sum())(X),
    "grad in a checkpoint": lambda f: fdbr.grad(
        lambda x: ops.sum(fdbr.checkpoint(fdbr.grad(scalar(f)))(x) * T)
    )(X),
    "used beside the function": lambda f: fdbr.grad(scalar(lambda x: f(x) * x + np.exp(x)))(X),
}


def bits(values):
    return [np.asarray(leaf).tobytes() for leaf in tree.leaves(values)]


# --- the same results ---------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_everything_is_bitwise_the_same(name, use):
    f = FUNCTIONS[name]
    plain, saving = USES[use](f), USES[use](fdbr.checkpoint(f))
    assert tree.structure(plain) == tree.structure(saving)
    assert bits(plain) == bits(saving)


@pytest.mark.parametrize("use", SUMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_or_the_same_up_to_the_order_of_sums(name, use):
    f = FUNCTIONS[name]
    assert_allclose(SUMS[use](fdbr.checkpoint(f)), SUMS[use](f), rtol=1e-12, atol=1e-12)


@given(cuts=st.lists(st.integers(0, 6), max_size=8), seed=st.integers(0, 99))
def test_however_it_is_nested(cuts, seed):
    """Checkpoints around any stretches of a chain, also inside of each other."""
    steps = [
        np.sin,
        lambda x: x @ x.T @ x,
        lambda x: x * T,
        np.exp,
        np.tanh,
        lambda x: x - x.mean(),
    ]

    def chain(x, low, high, cuts):
        if not cuts:
            for step in steps[low:high]:
                x = step(x)
            return x
        middle = min(max(cuts[0], low), high)
        x = fdbr.checkpoint(lambda x: chain(x, low, middle, cuts[1::2]))(x)
        return fdbr.checkpoint(chain)(x, middle, high, cuts[2::2])

    x = np.random.default_rng(seed).normal(size=(2, 3))
    with_cuts = fdbr.grad(lambda x: ops.sum(chain(x, 0, 6, cuts)))
    without = fdbr.grad(lambda x: ops.sum(chain(x, 0, 6, [])))
    assert bits(with_cuts(x)) == bits(without(x))


# --- what it sees around it ---------------------------------------------------------


def test_traced_values_of_around():
    def f(x, checkpoint):
        y = np.sin(x)
        inner = checkpoint(lambda h: h * y + np.cos(h) * x)
        return inner(x * 2) * inner(y)

    second = lambda c: fdbr.grad(lambda x: fdbr.grad(lambda x: f(x, c))(x))(0.7)
    first = lambda c: fdbr.grad(lambda x: f(x, c))(0.7)
    assert np.isclose(first(fdbr.checkpoint), first(lambda g: g), rtol=1e-13)
    assert np.isclose(second(fdbr.checkpoint), second(lambda g: g), rtol=1e-13)
    assert fdbr.grad(lambda x: fdbr.checkpoint(lambda: x * x)())(3.0) == 6.0
    assert fdbr.grad(lambda x: fdbr.checkpoint(lambda: x)() * 2)(3.0) == 2.0


def test_traced_values_of_around_under_other_transformations():
    def f(x, y, checkpoint):
        z = np.sin(x) * y
        return checkpoint(lambda h: np.tanh(h * x) * z + checkpoint(lambda: z * h)())(y * x)

    slope = lambda c: fdbr.grad(lambda x, y: f(x, y, c), (0, 1))
    points = np.array([0.3, -0.8, 1.2]), np.array([0.9, 0.4, -1.1])
    for use in (
        lambda c: fdbr.vmap(slope(c))(*points),
        lambda c: fdbr.vmap(slope(c), (0, None))(points[0], 0.7),
        lambda c: fdbr.jvp(slope(c), (0.3, 0.9), (1.0, 2.0)),
        lambda c: fdbr.vmap(lambda x: fdbr.grad(lambda y: f(x, y, c))(x * x))(points[0]),
        lambda c: fdbr.vmap(lambda x: fdbr.jvp(lambda y: slope(c)(x, y), (x,), (x,)))(points[0]),
        lambda c: fdbr.hessian(lambda x: ops.sum(f(x, x[::-1], c)))(points[0]),
    ):
        assert_allclose(use(fdbr.checkpoint), use(lambda g: g), rtol=1e-12)


def test_traced_values_of_several_transformations():
    def f(checkpoint):
        inside = checkpoint(lambda a, b: np.sin(a * b) * a)
        return fdbr.grad(lambda x: fdbr.grad(lambda y: inside(x, y) * x)(x**2))(0.7)

    assert np.isclose(f(fdbr.checkpoint), f(lambda g: g), rtol=1e-13)


def test_the_variable_of_a_loop_is_what_it_was():
    def f(x, checkpoint):
        for i in range(4):
            x = checkpoint(lambda h: np.sin(h * (i + 1.0)))(x)  # noqa: B023
        return x

    for of in (fdbr.grad, lambda f: fdbr.grad(fdbr.grad(f)), lambda f: fdbr.hessian(f)):
        plain, saving = of(lambda x: f(x, lambda g: g)), of(lambda x: f(x, fdbr.checkpoint))
        assert np.isclose(plain(0.7), saving(0.7), rtol=1e-13)


def test_a_variable_that_is_set_anew_or_only_later():
    def anew(x):
        w = x * 2
        y = fdbr.checkpoint(lambda h: h * w)(x)
        w = None
        return y

    def later(x):
        block = fdbr.checkpoint(lambda h: h * 2 if h > 0 else unknown)
        y = block(x)
        unknown = 3.0
        return y * unknown

    assert fdbr.grad(anew)(1.5) == 6.0
    assert fdbr.grad(later)(1.5) == 6.0


def test_a_recursive_function():
    def f(x, n, checkpoint):
        if n == 0:
            return x
        return np.sin(checkpoint(lambda y: f(y, n - 1, checkpoint))(x) * x)

    plain, saving = fdbr.grad(f)(0.7, 5, lambda g: g), fdbr.grad(f)(0.7, 5, fdbr.checkpoint)
    assert np.isclose(plain, saving, rtol=1e-13)


def test_defaults_and_keyword_only_defaults_come_along():
    def f(x):
        for i in range(3):

            def block(h, i=i, *, power=i + 1):
                return np.sin(h * (i + 1.0)) ** power

            x = fdbr.checkpoint(block)(x)
        return x

    step = 1e-6
    slope = (f(0.7 + step) - f(0.7 - step)) / (2 * step)
    assert np.isclose(fdbr.grad(f)(0.7), slope)


# --- arguments and results ----------------------------------------------------------


def test_trees_keywords_and_static_arguments():
    def block(layer, x, mode, *, scale, shift=0.0):
        assert mode == "train"
        return {"y": layer(x) * scale + shift, "n": 3, "mask": x > 0, "none": None}

    def loss(layer, x, checkpoint):
        out = checkpoint(block)(layer, x, "train", scale=x[0, 0] ** 2, shift=layer.bias.sum())
        assert out["n"] == 3
        assert out["none"] is None
        assert out["mask"].dtype == bool
        return (out["y"] ** 2).sum()

    found = fdbr.grad(loss, (0, 1))(LAYER, X, fdbr.checkpoint)
    expected = fdbr.grad(loss, (0, 1))(LAYER, X, lambda f: f)
    assert bits(found) == bits(expected)
    assert found[0].seen is None


@pytest.mark.parametrize("used", [p for p in itertools.product([0, 1], repeat=3) if any(p)])
def test_of_several_results_some_may_not_be_used(used):
    f = lambda x: (np.sin(x), x @ x.T, x)
    ct = (T, np.eye(2), X)
    given = tuple(c if u else None for c, u in zip(ct, used, strict=True))
    assert bits(fdbr.vjp(fdbr.checkpoint(f), X)[1](given)) == bits(fdbr.vjp(f, X)[1](given))


def test_one_value_twice():
    def f(x):
        y = x * x
        return y, (y, x), y

    ct = (1.0, (2.0, 3.0), 4.0)
    assert fdbr.vjp(fdbr.checkpoint(f), 1.5)[1](ct) == fdbr.vjp(f, 1.5)[1](ct)


def test_results_that_depend_on_nothing_traced():
    f = fdbr.checkpoint(lambda x: (3.0, np.ones(2), "name"))
    assert fdbr.grad(lambda x: f(x)[0] * x)(2.0) == 3.0
    assert fdbr.checkpoint(lambda x: x)("anything") == "anything"


def test_methods_frozen_classes_and_partial_functions():
    for f in (LAYER, LAYER.__call__, functools.partial(lambda a, b: a @ b, b=np.eye(3)), np.sin):
        slope = fdbr.grad(lambda x, f=f: (fdbr.checkpoint(f)(x) * T).sum())(X)
        assert bits(slope) == bits(fdbr.grad(lambda x, f=f: (f(x) * T).sum())(X))
    assert fdbr.checkpoint(np.sin).__name__ == "sin"


def test_randomness_with_a_key_is_pure():
    def block(x, key):
        return x * random.normal(key, x.shape) + np.exp(x)

    f = lambda x, checkpoint: ops.sum(checkpoint(block)(x, random.key(3)) ** 2)
    assert bits(fdbr.grad(f)(X, fdbr.checkpoint)) == bits(fdbr.grad(f)(X, lambda g: g))


def test_functions_of_modules_other_than_numpy(xp, to_numpy):
    x = xp.asarray(X)
    f = lambda x: ops.sum(ops.sin(ops.sin(x)) ** 2)
    slope = fdbr.grad(fdbr.checkpoint(f))(x)
    assert type(slope) is type(x)
    assert bits(to_numpy(slope)) == bits(to_numpy(fdbr.grad(f)(x)))


def test_a_changed_argument_does_not_change_the_gradient():
    x = np.full((100, 100), 2.0)
    _, pullback = fdbr.vjp(fdbr.checkpoint(lambda x: x * x), x)
    x[:] = 7.0
    assert (pullback(np.ones((100, 100)))[0] == 4.0).all()


# --- functions that are not pure ----------------------------------------------------


class Changing:
    """A function that multiplies by another number every time."""

    def __init__(self):
        self.count = 0

    def __call__(self, x):
        self.count += 1
        return x * self.count


IMPURE = {
    "grad": lambda f: fdbr.grad(f)(1.0),
    "grad of grad": lambda f: fdbr.grad(fdbr.grad(lambda x: f(x) ** 3))(1.0),
    "vmap of grad": lambda f: fdbr.vmap(fdbr.grad(f))(np.ones(3)),
    "grad of vmap": lambda f: fdbr.grad(lambda x: fdbr.vmap(f)(x).sum())(np.ones(3)),
    "hvp": lambda f: fdbr.hvp(f, (1.0,), (1.0,)),
    "grad of jvp": lambda f: fdbr.grad(lambda x: fdbr.jvp(f, (x,), (x,))[1])(1.0),
}


@pytest.mark.parametrize("name", IMPURE)
def test_another_result_in_the_backward_pass_is_an_error(name):
    with pytest.raises(
        RuntimeError, match=r"fdbr.checkpoint: .*Changing gave another result when it "
    ):
        IMPURE[name](fdbr.checkpoint(Changing()))


def counted(make):
    """A function that does something else every second time."""
    counter = itertools.count()
    return lambda x: make(x, next(counter) % 2)


OTHER = {
    "another shape": lambda x, n: ops.stack([x] * (2 + n)),
    "more results": lambda x, n: [x] * (2 + n),
    "a constant": lambda x, n: fdbr.stop_gradient(x) * 2 if n else x * 2,
    "not a number": lambda x, n: x * np.nan if n else x,
}


@pytest.mark.parametrize("name", OTHER)
def test_so_is_one_of_another_kind(name):
    f = fdbr.checkpoint(counted(OTHER[name]))
    with pytest.raises(RuntimeError, match="gave another result when it was run again"):
        fdbr.grad(lambda x: sum(ops.sum(y) for y in tree.leaves(f(x))))(1.0)


def test_results_that_are_not_numbers_both_times_are_the_same():
    slope = fdbr.grad(fdbr.checkpoint(lambda x: x * np.nan))(1.0)
    assert np.isnan(slope)


def test_what_a_function_calls_must_be_pure_too():
    def f(x):
        for i in range(3):
            helper = lambda h: h * (i + 1.0)  # noqa: B023
            x = fdbr.checkpoint(lambda h: np.sin(helper(h)))(x)  # noqa: B023
        return x

    for of in (fdbr.grad, lambda f: fdbr.grad(fdbr.grad(f))):
        with pytest.raises(RuntimeError, match="the variable of a loop"):
            of(f)(0.7)


def test_an_error_in_the_second_run_is_the_callers():
    def fails(x, n):
        if n:
            raise KeyError("mine")
        return x * x

    with pytest.raises(KeyError, match="mine"):
        fdbr.grad(fdbr.checkpoint(counted(fails)))(1.0)
    assert fdbr.grad(fdbr.checkpoint(np.sin))(0.0) == 1.0


def test_what_is_no_function():
    with pytest.raises(TypeError, match=r"fdbr.checkpoint: f must be a function, not int 3"):
        fdbr.checkpoint(3)
