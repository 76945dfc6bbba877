"""The tape, and running backward over it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.core import tape
from fdbr.core.tape import ReverseTrace, ReverseTracer, backward, new_node

# --- backward -----------------------------------------------------------------------


def scale(ct, factor):
    return ct * factor


def test_the_cotangent_of_an_input_is_found_under_its_number():
    leaf = new_node((), "input")
    node = new_node([(leaf, scale, (3.0,))], "op")
    assert backward([(node, np.float64(2.0))]) == {leaf[0]: 6.0}


def test_without_roots_there_are_no_cotangents():
    assert backward([]) == {}


def test_the_roots_are_taken_out_of_the_list():
    leaf = new_node((), "input")
    roots = [(leaf, np.float64(1.0))]
    assert backward(roots) == {leaf[0]: 1.0}
    assert roots == []


def test_one_root_given_twice_counts_twice():
    leaf = new_node((), "input")
    assert backward([(leaf, np.float64(1.0)), (leaf, np.float64(2.0))]) == {leaf[0]: 3.0}


@given(st.data())
def test_backward_sums_over_all_paths(data):
    """Against the product of path weights, in a random directed graph."""
    count = data.draw(st.integers(1, 8))
    nodes = [new_node((), "input")]
    weights = [1.0]
    for _ in range(count):
        places = st.integers(0, len(nodes) - 1)
        parents = data.draw(st.lists(places, min_size=1, max_size=3))
        factors = [float(data.draw(st.integers(-2, 2))) for _ in parents]
        edges = [(nodes[p], scale, (f,)) for p, f in zip(parents, factors, strict=True)]
        nodes.append(new_node(edges, "op"))
        weights.append(sum(weights[p] * f for p, f in zip(parents, factors, strict=True)))
    found = backward([(nodes[-1], np.float64(1.0))])
    assert found == {nodes[0][0]: weights[-1]}


def test_each_entry_is_visited_once_and_the_latest_first():
    visits = []

    def visit(ct, name):
        visits.append(name)
        return ct

    leaf = new_node((), "input")
    a = new_node([(leaf, visit, ("a",))], "a")
    b = new_node([(a, visit, ("b",))], "b")
    c = new_node([(a, visit, ("c1",)), (b, visit, ("c2",))], "c")
    d = new_node([(c, visit, ("d1",)), (b, visit, ("d2",))], "d")
    assert backward([(d, np.float64(1.0))]) == {leaf[0]: 3.0}
    assert visits == ["d1", "d2", "c1", "c2", "b", "a"]


def test_numbers_count_downward():
    first, second = new_node((), "a"), new_node((), "b")
    assert second[0] < first[0]


@given(st.integers(2, 6))
def test_sums_are_not_written_into_cotangents_that_are_in_use(uses):
    """One cotangent goes to several operands, and each of them gets more."""
    a, b = new_node((), "a"), new_node((), "b")
    seed = np.ones(3)
    give = lambda ct: ct
    edges = [(a, give, ()), (b, give, ())] * uses
    found = backward([(new_node(edges, "op"), seed)])
    assert seed.tolist() == [1.0] * 3
    assert found[a[0]].tolist() == found[b[0]].tolist() == [float(uses)] * 3
    assert found[a[0]] is not found[b[0]]


def test_saved_arrays_are_not_written_to():
    saved = np.ones(3)
    leaf = new_node((), "input")
    edges = [(leaf, lambda ct, saved: saved, (saved,))] * 3
    assert backward([(new_node(edges, "op"), np.ones(3))])[leaf[0]].tolist() == [3.0] * 3
    assert saved.tolist() == [1.0] * 3


# --- the tape -----------------------------------------------------------------------


def recorded(f, *args):
    """The traced result of a function, and its trace."""
    trace = ReverseTrace("vjp", f)
    return f(*[trace.input(arg) for arg in args]), trace


def test_an_operation_refers_to_the_operands_that_are_traced():
    out, _ = recorded(lambda x, y: x * 2.0 + y, 1.0, 2.0)
    number, edges, name = out.node
    assert name == "add"
    assert [parent[2] for parent, _, _ in edges] == ["multiply", "input"]
    assert all(parent[0] > number for parent, _, _ in edges)


def test_constants_are_no_part_of_the_tape():
    out, _ = recorded(lambda x: np.ones(3) * x, np.ones(3))
    assert len(out.node[1]) == 1


@pytest.mark.parametrize(
    "constant",
    [
        lambda x: x > 0,
        np.floor,
        np.sign,
        lambda x: x.astype(int),
        np.isnan,
        ops.argmax,
        fdbr.stop_gradient,
        np.zeros_like,
    ],
)
def test_what_has_no_derivative_is_not_traced(constant):
    out, _ = recorded(constant, np.ones(3))
    assert not isinstance(out, ReverseTracer)


def test_outside_of_transformations_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(tape, "new_node", None)
    assert not isinstance(ops.sin(np.ones(3)), ReverseTracer)


def test_two_traces_of_one_function_know_nothing_of_each_other():
    one, trace = recorded(np.sin, np.ones(2))
    other, another = recorded(np.sin, np.ones(2))
    assert one._trace is trace
    assert other._trace is another
    assert one.node[0] != other.node[0]


# --- array modules ------------------------------------------------------------------


@pytest.fixture(scope="module")
def array(xp):
    return lambda values, dtype="float64": xp.asarray(np.asarray(values, dtype))


def model(xp):
    def f(x, w):
        h = ops.tanh(ops.matmul(x, w)) * x[:, :1]
        return ops.sum(ops.where(h > 0, h * h, -h)) / 2.0

    return f


def test_gradients_on_every_array_module_are_numpys(xp, array, to_numpy):
    x, w = np.arange(6.0).reshape(2, 3) / 5 - 0.4, np.eye(3)[:, :2] + 0.1
    expected = fdbr.grad(model(np), argnums=(0, 1))(x, w)
    found = fdbr.grad(model(xp), argnums=(0, 1))(array(x), array(w))
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(array(x))
        assert np.allclose(to_numpy(one), other)


def test_second_derivatives_on_every_array_module(xp, array, to_numpy):
    slope = fdbr.grad(lambda x: ops.sum(fdbr.grad(lambda x: ops.sum(x**4))(x) * x))
    assert np.allclose(to_numpy(slope(array([1.0, 2.0]))), 16 * np.array([1.0, 8.0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_gradients_have_the_input_s_type_on_every_array_module(xp, array, dtype, shape):
    x = array(np.ones(shape), dtype)
    value, slope = fdbr.value_and_grad(lambda x: ops.sum(x * x))(x)
    assert type(slope) is type(x)
    assert (slope.dtype, slope.shape) == (x.dtype, x.shape)
    assert value.dtype == x.dtype
    unused = fdbr.grad(lambda x: 1.0)(x)
    assert type(unused) is type(x)
    assert (unused.dtype, unused.shape) == (x.dtype, x.shape)


def test_pullbacks_on_every_array_module(xp, array, to_numpy):
    out, pullback = fdbr.vjp(lambda x: (x * 2.0, ops.sum(x)), array([1.0, 2.0]))
    assert type(out[0]) is type(array([1.0]))
    (slope,) = pullback((array([1.0, 10.0]), None))
    assert to_numpy(slope).tolist() == [2.0, 20.0]
    (slope,) = pullback((array([1.0, 10.0]), 100.0))
    assert to_numpy(slope).tolist() == [102.0, 120.0]


@pytest.mark.parametrize("count", [3, 5000])
def test_writing_to_an_array_of_any_module_leaves_gradients_alone(xp, array, to_numpy, count):
    x, constant = array(np.ones(count)), array(np.full(count, 3.0))
    out, pullback = fdbr.vjp(lambda x: x[1:] * x[:-1] * constant[1:], x)
    expected = to_numpy(pullback(out * 0.0 + 1.0)[0])
    x[...] = 7.0
    constant[...] = 7.0
    assert np.array_equal(to_numpy(pullback(out * 0.0 + 1.0)[0]), expected)


def test_results_on_any_module_do_not_share_the_input_s_memory(xp, array, to_numpy):
    x, ct = array(np.ones(5000)), array(np.ones(5000))
    out, pullback = fdbr.vjp(lambda x: x, x)
    (slope,) = pullback(ct)
    x[...] = 7.0
    ct[...] = 7.0
    assert (to_numpy(out) == 1).all()
    assert (to_numpy(slope) == 1).all()
