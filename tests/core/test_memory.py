"""What is kept, for how long, and that nothing needs the garbage collector."""

import contextlib
import itertools
import tracemalloc
import weakref

import numpy as np
import pytest
from garbage import no_garbage

import fdbr
from fdbr import backend, ops
from fdbr.core import tape

MEGABYTE = 1 << 20
COUNT = MEGABYTE // 8  # of float64 numbers in a megabyte


def peak(thunk):
    """The most memory that a call held at once beyond what there was before, in megabytes."""
    thunk()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        thunk()
        return (tracemalloc.get_traced_memory()[1] - before) / MEGABYTE
    finally:
        tracemalloc.stop()


# --- no garbage ---------------------------------------------------------------------


@fdbr.frozen
class Mlp:
    weights: list
    biases: list
    seen: object = fdbr.buffer(default=None)

    def __call__(self, x):
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = ops.relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def mlp(widths=(6, 5, 4, 3)):
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(widths))
    return Mlp([rng.normal(size=p) for p in pairs], [np.zeros(n) for _, n in pairs], np.zeros(2))


def loss(model, images, labels):
    logits = model(images)
    return ops.softmax_cross_entropy(logits, labels), {"accuracy": ops.accuracy(logits, labels)}


def test_training_steps_leave_no_garbage():
    images, labels = np.random.default_rng(1).normal(size=(8, 6)), np.arange(8) % 3
    step = fdbr.value_and_grad(loss, has_aux=True)

    def train(model, steps):
        for _ in range(steps):
            (_, _), slope = step(model, images, labels)
            model = fdbr.tree.map(lambda p, g: p if g is None else p - 0.1 * g, model, slope)
        return model

    train(mlp(), 2)
    with no_garbage():
        train(mlp(), 100)


def nested(x):
    def inner(y):
        _, pullback = fdbr.vjp(lambda z: np.tanh(z @ z) * y, y)
        return pullback(y)[0].sum()

    return fdbr.grad(inner)(x).sum()


def leaking(x, kept=[]):  # noqa: B006
    kept.append(x)
    return x.sum()


def jitted(f):
    return fdbr.jit(f)


def turning(x):
    """Loops that see an array around them."""
    total = fdbr.scan(lambda s, t: (s + ops.sum(x * t), None), 0.0, np.arange(3.0))[0]
    return fdbr.while_loop(lambda s: s[1] < 3, lambda s: (s[0] + ops.sum(x), s[1] + 1), (total, 0))


@pytest.mark.parametrize(
    "use",
    [
        lambda: fdbr.grad(nested)(np.ones((3, 3))),
        lambda: fdbr.vjp(nested, np.ones((3, 3))),
        lambda: fdbr.vjp(lambda x: (x[0], x.max(axis=0)), np.ones((3, 3))),
        lambda: fdbr.grad(lambda x: x.at[np.array([0, 0])].add(x[:2]).sum())(np.ones(3)),
        lambda: fdbr.grad(leaking)(np.ones(3)),
        lambda: fdbr.grad(lambda x: x)(np.ones(3)),
        lambda: fdbr.grad(lambda x: (x @ np.ones((4, 4))).sum())(np.ones(3)),
        lambda: fdbr.grad(lambda x: (x + np.ones(2)).sum())(np.ones(3)),
        lambda: fdbr.grad(lambda x: fdbr.grad(lambda y: 1 / 0)(x))(1.0),
        lambda: fdbr.vjp(lambda x: x, 1.0)[1](np.ones(3)),
        lambda: fdbr.tree.map(lambda a, b: a, [1], [1, 2]),
        lambda: fdbr.fixed_point(lambda x, a: ops.cos(x) * a[0], 0.5, np.ones(3)),
        lambda: fdbr.minimize(lambda x, a: ops.sum((x - a) ** 2), np.zeros(2), np.ones(2)),
        lambda: fdbr.odeint(lambda y, t, a: -a * y, np.ones(2), np.linspace(0, 1, 3), 2.0),
        lambda: jitted(lambda x: ops.sum(ops.sin(x) * 2))(np.ones(3)),
        lambda: fdbr.grad(jitted(lambda x: ops.sum(ops.sin(x))))(np.ones(3)),
        lambda: jitted(turning)(np.ones(3)),
        lambda: jitted(lambda x: x @ x.reshape(-1, 2))(np.ones(3)),
        lambda: jitted(lambda x: 1 / 0)(np.ones(3)),
    ],
)
def test_neither_nesting_nor_errors_leave_garbage(use):
    def attempt():
        with contextlib.suppress(TypeError, ValueError, ZeroDivisionError):
            use()

    attempt()
    with no_garbage():
        for _ in range(5):
            attempt()


# --- what is kept -------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        turning,
        lambda x: fdbr.fori_loop(0, 3, lambda i, y: y + ops.sin(x), x),
        lambda x: ops.sum(ops.tanh(x) * x),
    ],
)
@pytest.mark.parametrize("use", [lambda f: f, lambda f: fdbr.grad(lambda x: ops.sum(sized(f(x))))])
def test_a_jitted_function_does_not_keep_the_arguments_with_which_it_was_traced(f, use):
    call = use(jitted(f))
    x = fdbr.device_put(np.linspace(0, 1, COUNT), "cpu")
    alive = weakref.ref(x)
    call(x)
    del x
    assert alive() is None


def sized(out):
    return out[0] if isinstance(out, tuple) else out


ADDITIONS = {
    "numbers": lambda y, x: y + 1.0,
    "itself": lambda y, x: y + y,
    "the input": lambda y, x: y + x,
    "a constant": lambda y, x: y + ONES,
    "the input taken away": lambda y, x: y - x,
    "scaling": lambda y, x: 0.5 * y,
}
ONES = np.ones(10 * COUNT)


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_chain_of_additions_holds_at_most_three_arrays(name):
    def chain(x):
        y = x
        for _ in range(50):
            y = ADDITIONS[name](y, x)
        return y.sum()

    assert peak(lambda: fdbr.grad(chain)(ONES)) < 30.5


def test_a_chain_that_needs_its_values_holds_each_once():
    def chain(x):
        for _ in range(20):
            x = np.sin(x)
        return x.sum()

    x = np.ones(COUNT)
    assert peak(lambda: fdbr.grad(chain)(backend.lock(x.copy()))) < 20 + 4.5


def test_an_input_that_is_needed_often_is_copied_once():
    def power(x):
        y = x
        for _ in range(20):
            y = (x * y)[: COUNT // 2].sum() * 1e-6
        return y

    assert peak(lambda: fdbr.grad(power)(np.ones(COUNT))) < 10


def test_a_constant_that_the_library_made_is_not_copied():
    weight = backend.lock(np.ones((1000, 1000)))
    x = np.ones(1000)

    def f(x):
        for _ in range(20):
            x = np.tanh(weight @ x * 1e-3)
        return x.sum()

    assert peak(lambda: fdbr.grad(f)(x)) < 1


def test_a_pullback_holds_what_rules_need_and_nothing_else():
    refs = {}

    def f(x):
        shifted = x + 1.0
        squares = shifted * shifted
        scaled = 3.0 * squares
        refs.update(shifted=weakref.ref(shifted.value), squares=weakref.ref(squares.value))
        refs.update(scaled=weakref.ref(scaled.value), traced=weakref.ref(shifted))
        return scaled - 2.0

    out, pullback = fdbr.vjp(f, np.ones(3))
    refs["out"] = weakref.ref(out)
    del out
    alive = {name for name, ref in refs.items() if ref() is not None}
    assert alive == {"shifted"}
    assert (pullback(np.ones(3))[0] == 12).all()
    assert refs["shifted"]() is not None
    del pullback
    assert refs["shifted"]() is None


def test_a_rule_that_needs_the_result_holds_the_result_and_not_the_operand():
    refs = []

    def f(x):
        shifted = x + 1.0
        out = np.exp(shifted)
        refs.extend([weakref.ref(shifted.value), weakref.ref(out.value)])
        return out + 1.0

    _, pullback = fdbr.vjp(f, np.ones(3))
    assert refs[0]() is None
    assert refs[1]() is not None
    del pullback
    assert refs[1]() is None


def test_an_operand_of_a_product_with_a_constant_is_not_held():
    refs = []

    def f(x):
        shifted = x + 1.0
        refs.append(weakref.ref(shifted.value))
        return shifted @ np.ones((3, 2))

    _, pullback = fdbr.vjp(f, np.ones((2, 3)))
    assert refs[0]() is None
    assert pullback(np.ones((2, 2)))[0].tolist() == [[2.0] * 3] * 2


def test_values_that_nothing_refers_to_die_at_once():
    def f(x):
        unused = np.sin(x)
        for _ in range(3):
            unused = unused * unused
        refs = [weakref.ref(unused), weakref.ref(unused.value)]
        del unused
        assert all(ref() is None for ref in refs)
        return x.sum()

    with no_garbage():
        fdbr.grad(f)(np.ones(3))


def test_history_behind_a_value_dies_with_it():
    def f(x):
        early = x + 1.0
        late = early * early
        ref = weakref.ref(early.value)
        del early
        assert ref() is not None  # the product needs it
        del late
        assert ref() is None
        return x.sum()

    fdbr.grad(f)(np.ones(3))


def test_a_value_that_is_only_compared_is_not_held():
    def f(x):
        early = x + 1.0
        ref = weakref.ref(early.value)
        positive = early > 0
        del early
        assert ref() is None
        return np.where(positive, x, 0.0).sum()

    fdbr.grad(f)(np.ones(3))


def test_a_transformed_function_keeps_neither_arguments_nor_results():
    gradient = fdbr.grad(lambda x: (x * x).sum())
    x = np.ones(5000)
    slope = gradient(x)
    refs = [weakref.ref(x), weakref.ref(slope)]
    del x, slope
    assert [ref() for ref in refs] == [None, None]


def test_memory_is_given_back_after_an_exception():
    refs = []

    def f(x):
        y = x * x
        refs.append(weakref.ref(y.value))
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fdbr.grad(f)(np.ones(3))
    assert refs[0]() is None


# --- running backward ---------------------------------------------------------------


def test_backward_frees_each_entry_before_the_next():
    refs = []
    seen = []

    def pull(ct, array, position):
        del array
        alive = [ref() is not None for ref in refs]
        seen.append((position, alive))
        return ct

    node = tape.new_node((), "input")
    for position in range(4):
        array = np.zeros(3)
        refs.append(weakref.ref(array))
        node = tape.new_node([(node, pull, (array, position))], "op")
    roots = [(node, np.ones(3))]
    del node, array
    tape.backward(roots)
    assert seen == [(p, [True] * (p + 1) + [False] * (3 - p)) for p in (3, 2, 1, 0)]


def test_backward_frees_cotangents_that_have_been_used():
    refs = []
    counts = []

    def pull(ct):
        counts.append(sum(ref() is not None for ref in refs))
        new = ct + 1.0
        refs.append(weakref.ref(new))
        return new

    node = tape.new_node((), "input")
    for _ in range(6):
        node = tape.new_node([(node, pull, ())], "op")
    tape.backward([(node, np.ones(3))])
    assert max(counts) <= 2


def test_gradients_of_a_deep_chain_need_no_more_than_its_values():
    def deep(x):
        for _ in range(30):
            x = np.tanh(x)
        return x.sum()

    forward = peak(lambda: fdbr.vjp(deep, np.ones(COUNT)))
    both = peak(lambda: fdbr.value_and_grad(deep)(np.ones(COUNT)))
    assert both < forward + 3


def test_a_pullback_may_be_called_again_and_holds_no_more_then():
    _, pullback = fdbr.vjp(lambda x: np.sin(np.sin(x)), np.ones(COUNT))
    pullback(ONES[:COUNT])
    tracemalloc.start()
    for _ in range(5):
        pullback(ONES[:COUNT])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 0.1 * MEGABYTE


# --- depth --------------------------------------------------------------------------


def long_chain(x):
    for _ in range(200_000):
        x = x + 1.0
    return x


def test_a_chain_of_very_many_operations_is_no_recursion():
    assert fdbr.grad(long_chain)(1.0) == 1.0


def test_a_long_history_is_freed_without_recursion():
    out, pullback = fdbr.vjp(long_chain, 1.0)
    assert out == 200_001.0
    with no_garbage():
        del pullback


def test_a_long_history_is_freed_without_recursion_when_the_function_fails():
    def f(x):
        long_chain(x)
        raise KeyError("inside")

    with pytest.raises(KeyError):
        fdbr.grad(f)(1.0)
