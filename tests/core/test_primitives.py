"""Primitives, traces, and the dispatch to the innermost of them."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.core import ownership
from fdbr.core.primitive import Primitive, dispatch, registry
from fdbr.core.tracer import Trace, Tracer
from fdbr.errors.checks import describe, integer, integers, name_of
from fdbr.ops import declare


@pytest.fixture
def registered():
    """Whatever a test registers is taken out again."""
    before = dict(registry)
    yield registry
    registry.clear()
    registry.update(before)


class Logged(Tracer):
    """A traced value of the trace below."""

    __slots__ = ()

    def __init__(self, trace, value):
        self._trace = trace
        self.value = value


class LoggingTrace(Trace):
    """A transformation that does nothing but write down what it is given."""

    __slots__ = ("log",)

    def __init__(self, log):
        super().__init__("log", lambda: None)
        self.log = log

    def process(self, primitive, args, params):
        self.log.append((self.level, primitive.name))
        mine = [type(a) is Logged and a._trace is self for a in args]
        below = [a.value if own else a for a, own in zip(args, mine, strict=True)]
        return Logged(self, dispatch(primitive, tuple(below), params))


# --- dispatch -----------------------------------------------------------------------


def test_outside_of_transformations_operations_are_numpys():
    x = np.ones(3)
    assert type(ops.add(x, x)) is np.ndarray
    assert ops.add(x, x).flags.writeable
    assert type(ops.sum(x)) is np.float64


def test_of_python_numbers_comes_a_python_number():
    assert type(ops.add(1.0, 2)) is float
    assert type(ops.multiply(2, 3)) is int
    assert type(ops.sin(0.0)) is float


def test_numbers_do_not_widen_an_array():
    assert ops.add(np.ones(2, np.float32), 1.5).dtype == np.float32
    assert ops.multiply(2.5, np.float32(2)).dtype == np.float32


def test_the_innermost_trace_goes_first():
    log = []
    outer, inner = LoggingTrace(log), LoggingTrace(log)
    out = ops.add(Logged(outer, 1.0), Logged(inner, 2.0))
    assert log == [(inner.level, "add"), (outer.level, "add")]
    assert out._trace is inner
    assert out.value._trace is outer
    assert out.value.value == 3.0


def test_an_operation_passes_by_traces_that_it_has_nothing_of():
    log = []
    outer = LoggingTrace(log)
    LoggingTrace(log)
    ops.add(Logged(outer, 1.0), 2.0)
    assert log == [(outer.level, "add")]


def test_a_value_of_two_traces_is_taken_apart_from_the_inside():
    log = []
    outer, inner = LoggingTrace(log), LoggingTrace(log)
    both = Logged(inner, Logged(outer, np.ones(2)))
    assert ops.negative(both).value.value.tolist() == [-1.0, -1.0]
    assert [level for level, _ in log] == [inner.level, outer.level]


def test_later_traces_have_larger_numbers():
    traces = [LoggingTrace([]) for _ in range(3)]
    assert traces[0].level < traces[1].level < traces[2].level


def test_gradients_pass_through_another_transformation():
    log = []
    trace = LoggingTrace(log)
    out = fdbr.grad(lambda x: x * x * Logged(trace, 2.0))(Logged(trace, 3.0))
    assert out.value == 12.0
    assert log


def test_a_trace_without_rules_says_so():
    trace = Trace("mine", len)
    with pytest.raises(TypeError, match="Trace has no rule for add"):
        ops.add(Logged(trace, 1.0), 1.0)
    with pytest.raises(TypeError, match="Trace has no rule for stop_gradient"):
        fdbr.stop_gradient(Logged(trace, 1.0))


def test_a_trace_that_has_ended_takes_no_operations():
    trace = LoggingTrace([])
    trace.running = False
    with pytest.raises(fdbr.EscapedTracerError, match=r"fdbr\.ops\.add: a traced value of log"):
        ops.add(Logged(trace, 1.0), 1.0)


def test_python_asks_the_trace_for_decisions():
    class Deciding(LoggingTrace):
        __slots__ = ()

        def decide(self, tracer, kind):
            return kind(not tracer.value)

    assert not Logged(Deciding([]), 1.0)
    assert int(Logged(Deciding([]), 0.0)) == 1


# --- primitives ---------------------------------------------------------------------


def test_a_primitive_is_registered_by_its_name(registered):
    primitive = Primitive("something_new", "constant", lambda xp, x: x, [None], None, None)
    assert registered["something_new"] is primitive
    assert repr(primitive) == "<constant primitive something_new>"


def test_a_name_is_taken_only_once(registered):
    with pytest.raises(ValueError, match="there is a primitive named 'add' already"):
        Primitive("add", "constant", lambda xp, x: x, [None], None, None)


def test_every_primitive_has_a_kind_and_a_name_of_its_own():
    known = {"elementwise", "linear", "multilinear", "opaque", "constant"}
    for name, primitive in registry.items():
        assert primitive.name == name
        assert primitive.kind in known


def test_a_new_operation_is_stated_once_and_nests(registered):
    @declare.elementwise(x=lambda x: 3 * square_of(x))
    def cube_of(xp, x):
        return x * x * x

    @declare.elementwise(x=lambda x: 2 * x)
    def square_of(xp, x):
        return x * x

    assert cube_of(2.0) == 8.0
    assert fdbr.grad(cube_of)(2.0) == 12.0
    assert fdbr.grad(fdbr.grad(cube_of))(2.0) == 12.0
    assert fdbr.grad(fdbr.grad(fdbr.grad(cube_of)))(2.0) == 6.0


def test_a_rule_for_an_operand_that_nobody_differentiates_is_never_run(registered):
    ran = []

    @declare.elementwise(x=lambda y: ran.append("x") or y, y=lambda x: ran.append("y") or x)
    def product_of(xp, x, y):
        return x * y

    assert fdbr.grad(lambda x: product_of(x, np.float64(5.0)))(2.0) == 5.0
    assert ran == ["x"]


def test_operands_have_no_names_and_structure_has(registered):
    @declare.linear(x=lambda ct, times: ct * times)
    def scale_of(xp, x, *, times=2):
        """Scaled."""
        return x * times

    assert scale_of(1.0) == 2.0
    assert fdbr.grad(lambda x: scale_of(x, times=5))(1.0) == 5.0
    assert (scale_of.__name__, scale_of.__doc__) == ("scale_of", "Scaled.")
    with pytest.raises(TypeError):
        scale_of(x=1.0)
    with pytest.raises(TypeError):
        scale_of(1.0, 5)


def test_an_operation_with_several_outputs(registered):
    @declare.opaque(x=(lambda cts, x: sum_of(cts, x), None))
    def both_of(xp, x):
        return xp.sin(x), xp.square(x), xp.floor(x).astype(int)

    def sum_of(cts, x):
        out = 0.0 * x
        if cts[0] is not None:
            out = out + cts[0] * ops.cos(x)
        if cts[1] is not None:
            out = out + cts[1] * 2 * x
        return out

    x = np.array([0.5, 1.5])
    assert np.allclose(fdbr.grad(lambda x: both_of(x)[1].sum())(x), 2 * x)
    assert np.allclose(fdbr.grad(lambda x: both_of(x)[0].sum())(x), np.cos(x))
    total = fdbr.grad(lambda x: sum(part.sum() for part in both_of(x)[:2]) * 1.0)(x)
    assert np.allclose(total, np.cos(x) + 2 * x)
    second = fdbr.grad(lambda x: fdbr.grad(lambda x: both_of(x)[1].sum())(x).sum())(x)
    assert np.allclose(second, 2.0)
    whole = fdbr.vjp(both_of, x)[0][2]
    assert whole.tolist() == [0, 1]
    assert not whole.flags.writeable


# --- messages -----------------------------------------------------------------------


def named(x):
    return ops.add(x, np.ones(4))


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda: ops.add(np.ones(3), np.ones(4)), ValueError, r"add: .*float64\[3\], float64\[4\]"),
        (lambda: fdbr.grad(named)(np.ones(3)), ValueError, r"add: .*float64\[3\], float64\[4\]"),
        (lambda: ops.add("a", 1), TypeError, r"add: .*\(operands: str, int 1\)"),
        (lambda: np.ones((2, 3)) @ traced(3, 2).T, ValueError, r"matmul: .*\[2,3\].*\[2,3\]"),
        (lambda: traced(3)[5], IndexError, r"getitem: index 5 is out of bounds.*float64\[3\]"),
        (lambda: ops.reshape(traced(3), (2, 2)), ValueError, r"reshape: .*3"),
        (lambda: ops.concat([traced(3), traced(2, 2)]), ValueError, r"concat: "),
        (lambda: ops.sum(traced(3), axis=2), Exception, r"sum: .*axis 2"),
    ],
)
def test_errors_of_operations_name_the_operation_and_its_operands(use, error, words):
    with pytest.raises(error, match=rf"^fdbr\.ops\.{words}"):
        use()


def traced(*shape):
    """A traced array whose transformation is still under way."""
    return fdbr.core.tape.ReverseTrace("grad", traced).input(np.ones(shape))


def test_errors_keep_their_cause():
    with pytest.raises(ValueError, match="operands") as caught:
        ops.add(np.ones(3), np.ones(4))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.ones((2, 3), np.float32), "float32[2,3]"),
        (np.float64(1), "float64[]"),
        (2.5, "float 2.5"),
        (True, "bool True"),
        ("text", "str"),
        (None, "NoneType"),
        ([1], "list"),
    ],
)
def test_values_are_described_by_dtype_and_shape(value, text):
    assert describe(value) == text


def test_functions_are_called_by_their_names():
    assert name_of(named) == "named"
    assert name_of(np.sin) == "sin"

    class Model:
        def __call__(self, x):
            return x

    assert name_of(Model()).endswith("Model")


def test_an_integer_is_what_python_takes_for_an_index():
    assert integer("f", "n", np.int8(3), least=3) == 3
    assert integer("f", "n", -4) == -4
    assert integers("f", "n", [np.int64(1), 2]) == (1, 2)
    assert integers("f", "n", np.int64(1)) == 1


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (lambda: integer("f", "n", 2.0), TypeError, "f: n must be an integer, got float 2.0"),
        (
            lambda: integer("f", "n", np.ones(2)),
            TypeError,
            "f: n must be an integer, got float64[2]",
        ),
        (lambda: integer("f", "n", 2, least=3), ValueError, "f: n must be at least 3, got 2"),
        (
            lambda: integers("f", "n", "x"),
            TypeError,
            "f: n must be an integer or a sequence of integers, not 'x'",
        ),
    ],
)
def test_what_is_no_integer_or_too_small_is_refused_by_name(check, error, message):
    with pytest.raises(error) as caught:
        check()
    assert str(caught.value) == message


def test_traces_tell_what_they_are():
    kept = []

    def loss(x):
        kept.append(repr(x._trace))
        return x.sum()

    fdbr.value_and_grad(loss)(np.ones(3, np.float32))
    assert kept == [r"value_and_grad(test_traces_tell_what_they_are.<locals>.loss)"]


# --- who may write to what ----------------------------------------------------------


def test_retain_copies_what_others_can_write_to_and_nothing_else():
    mine = fdbr.backend.lock(np.ones(3))
    yours = np.ones(3)
    assert ownership.retain(mine) is mine
    kept = ownership.retain(yours)
    assert kept is not yours
    assert not kept.flags.writeable
    assert ownership.retain(3.0) == 3.0
    assert ownership.retain(None) is None


def test_a_traced_value_goes_on_with_the_copy_that_was_made_of_it():
    x = np.ones(5000)
    tracer = fdbr.core.tape.ReverseTrace("grad", len).input(x)
    assert tracer.value is x
    assert ownership.retain(tracer) is tracer
    copy = tracer.value
    assert copy is not x
    ownership.retain(tracer)
    assert tracer.value is copy
