"""Where memory is short arrays are used up, but only such as nobody can look at again."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fdbr
from fdbr import backend, ops, tree
from fdbr.ops.declare import elementwise

SHAPE = (512, 128)  # 512 KiB
X = backend.lock(np.random.default_rng(0).normal(size=SHAPE))
W = backend.lock(np.random.default_rng(1).normal(size=(128, 128)) / 128**0.5)
ACTIVATIONS = [ops.tanh, ops.relu, ops.sigmoid, ops.exp, ops.sqrt]


def bits(values):
    return [np.asarray(leaf).tobytes() for leaf in tree.leaves(values)]


def positive(x, w):
    return ops.linear(x, w) ** 2 + 0.5


def named(act, x, w):
    z = positive(x, w)
    return act(z) + z


def in_a_list(act, x, w):
    held = [positive(x, w)]
    return act(held[0]) + held[0]


def in_a_tuple_of_arguments(act, x, w):
    args = (positive(x, w),)
    return act(*args) + args[0]


def in_a_partial(act, x, w):
    call = functools.partial(act, positive(x, w))
    return call() + call()


def in_a_closure(act, x, w):
    def inner():
        return act(z)

    z = positive(x, w)
    return inner() + z


def in_the_frame_that_calls(act, x, w):
    def inner(y):
        return act(y)

    z = positive(x, w)
    return inner(z) + z


def by_a_generator(act, x, w):
    def values():
        z = positive(x, w)
        yield z
        yield z

    return sum(act(z) * z for z in values())


def mapped(act, x, w):
    held = [positive(x, w)]
    return next(map(act, held)) + held[0]


def kept_by_the_tape(act, x, w):
    return act(ops.exp(-positive(x, w)))


def through_numpy(act, x, w):
    z = positive(x, w)
    return act(z) + np.tanh(z) * z


def viewed(act, x, w):
    part = []

    def view(z):
        part.append(z[:3])
        return z

    return act(view(positive(x, w))) + ops.sum(part[0])


def reshaped(act, x, w):
    z = positive(x, w)
    return act(ops.reshape(z, (-1,))).sum() + z


def the_array_without_the_traced_value(act, x, w):
    kept = []

    def plain(z):
        kept.append(fdbr.stop_gradient(z))
        return z

    return act(plain(positive(x, w))) * kept[0]


def an_argument_that_is_used_later(act, x, w):
    x = x * x
    return act(x) + x


def a_default(act, x, w):
    def inner(z=positive(x, w)):  # noqa: B008
        return act(z) * z

    return inner() + inner()


def of_two_results(act, x, w):
    z, y = ops.unstack(ops.stack([positive(x, w), positive(x, w)]))
    return act(z) + act(y) * z


USES = [
    named,
    in_a_list,
    in_a_tuple_of_arguments,
    in_a_partial,
    in_a_closure,
    in_the_frame_that_calls,
    by_a_generator,
    mapped,
    kept_by_the_tape,
    through_numpy,
    viewed,
    reshaped,
    the_array_without_the_traced_value,
    an_argument_that_is_used_later,
    a_default,
    of_two_results,
]


def loss(use, act, wrap):
    block = wrap(functools.partial(use, act))
    return lambda x, w: ops.sum(block(x, w) ** 2)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_what_is_still_in_use_is_left_alone(use):
    for act in ACTIVATIONS:
        expected = fdbr.grad(loss(use, act, lambda f: f), argnums=(0, 1))(X, W)
        found = fdbr.grad(loss(use, act, fdbr.checkpoint), argnums=(0, 1))(X, W)
        assert bits(found) == bits(expected), act.__name__
        assert np.isfinite(found[1]).all()


def nested_calls(act, x, w):
    return act(ops.linear(act(positive(x, w)), w) ** 2 + 1)


@pytest.mark.parametrize("act", [ops.tanh, ops.relu, ops.sqrt], ids=lambda act: act.__name__)
def test_what_is_used_up_gives_the_same_gradient(act):
    expected = fdbr.grad(loss(nested_calls, act, lambda f: f), argnums=(0, 1))(X, W)
    found = fdbr.grad(loss(nested_calls, act, fdbr.checkpoint), argnums=(0, 1))(X, W)
    assert bits(found) == bits(expected)


def test_a_pullback_may_be_called_again_and_from_threads():
    block = fdbr.checkpoint(functools.partial(nested_calls, ops.tanh))
    _, expected = fdbr.vjp(functools.partial(nested_calls, ops.tanh), X, W)
    _, pullback = fdbr.vjp(block, X, W)
    ct = backend.lock(np.cos(X))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(pullback, [ct] * 8))
    assert all(bits(result) == bits(expected(ct)) for result in results)


def test_a_cotangent_that_the_user_has_is_left_alone():
    _, pullback = fdbr.vjp(fdbr.checkpoint(ops.tanh), X)
    ct = np.cos(X)
    before = ct.copy()
    first = pullback(ct)
    assert (ct == before).all()
    assert bits(pullback(ct)) == bits(first)


def test_a_cotangent_that_a_rule_has_kept_is_left_alone():
    kept = []

    @fdbr.custom_vjp
    def double(x):
        return 2 * x

    def backward(_, ct):
        kept.append(2 * ct)
        return (kept[-1],)

    double.defvjp(lambda x: (2 * x, None), backward)
    block = fdbr.checkpoint(lambda x: double(ops.tanh(x)))
    fdbr.grad(lambda x: ops.sum(block(x) * 3.0))(X)
    assert (kept[-1] == 6.0).all()


def test_a_cotangent_that_is_given_to_two_operands_is_left_alone():
    def f(x):
        return ops.tanh(x) + ops.exp(x) + ops.tanh(2 * x)

    def total(wrap):
        return lambda x: ops.sum(wrap(f)(x) * ops.cos(x))

    expected, found = fdbr.grad(total(lambda f: f))(X), fdbr.grad(total(fdbr.checkpoint))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_large_arrays_of_every_layout_have_the_right_gradient():
    for x in (X.T, X[:, ::2], X[::2], np.asfortranarray(X), X.reshape(1, -1), X.ravel()):
        for act in ACTIVATIONS[:3]:
            x = backend.lock(x.copy(order="K"))

            def f(x, wrap, act=act):
                return ops.sum(wrap(lambda x: act(act(2 * x)))(x))

            expected = fdbr.grad(lambda x: f(x, lambda g: g))(x)
            found = fdbr.grad(lambda x: f(x, fdbr.checkpoint))(x)
            assert bits(found) == bits(expected)


TRANSFORMED = {
    "hvp": lambda f: fdbr.hvp(f, (X,), (np.cos(X),)),
    "jvp of grad": lambda f: fdbr.jvp(fdbr.grad(f), (X,), (np.cos(X),)),
    "vmap of grad": lambda f: fdbr.vmap(fdbr.grad(f))(np.stack([X, -X])),
    "grad of vmap": lambda f: fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x)))(X),
    "jit of grad": lambda f: fdbr.jit(fdbr.grad(f))(X),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_other_transformations_have_the_right_results(name):
    def f(x, wrap):
        block = wrap(lambda x: ops.sigmoid(ops.tanh(2 * x)) * x)
        return ops.sum(block(block(x)))

    use = TRANSFORMED[name]
    expected = use(lambda x: f(x, lambda g: g))
    found = use(lambda x: f(x, fdbr.checkpoint))
    fdbr.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@elementwise(x=lambda out: np.float64(0.5) / out)
def promoting_root(xp, x):
    """The square root, whose derivative is of another dtype."""
    return xp.sqrt(x)


@elementwise(x=lambda out: np.float64(0.5) * out)
def promoting_exp(xp, x):
    return np.float64(2.0) * xp.exp(x)


@pytest.mark.parametrize("op", [promoting_root, promoting_exp])
def test_an_operation_may_change_the_dtype(op):
    def f(x, wrap):
        return ops.sum(wrap(lambda x: op(0.5 * x))(x))

    x = backend.lock(np.abs(np.resize(X, (1024, 128))).astype("float32") + 1)
    expected, found = (fdbr.grad(lambda x, w=w: f(x, w))(x) for w in (lambda g: g, fdbr.checkpoint))
    assert bits(found) == bits(expected)
    assert found.dtype == expected.dtype


def test_an_error_in_the_middle_is_raised_as_ever():
    def block(x):
        with np.errstate(over="raise"):
            return ops.exp(2.0 * x)

    huge = backend.lock(np.full(SHAPE, 400.0))
    with pytest.raises(FloatingPointError):
        fdbr.grad(lambda x: ops.sum(fdbr.checkpoint(block)(x)))(huge)


def test_observed_operations_are_seen_whole():
    shapes = []
    note = fdbr.debug.hook(before=lambda a: shapes.append((a.op, a.operands[0].shape)))
    block = fdbr.checkpoint(lambda x: ops.tanh(ops.linear(x, W)))
    expected = fdbr.grad(lambda x: ops.sum(block(x)))(X)
    with note:
        found = fdbr.grad(lambda x: ops.sum(block(x)))(X)
    assert bits(found) == bits(expected)
    assert {shape for op, shape in shapes if op == "tanh"} == {SHAPE}
