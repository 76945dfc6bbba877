"""Hooks see every application once, and profiles add up."""

import io
import linecache
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import fdbr
from fdbr import debug, nn, ops
from fdbr.debug.observing import Observer, place, run
from fdbr.debug.watching import observing
from fdbr.ops.declare import elementwise


def seen_by_hook(thunk, nested=False):
    """(direction, op) of all that a hook is told, in order."""
    seen = []
    with debug.hook(before=lambda a: seen.append((a.direction, a.op)), nested=nested):
        thunk()
    return seen


def lines(applications_or_rows):
    return {a.source.text for a in applications_or_rows}


def loss(x):
    return ops.sum(ops.tanh(x) * x)


# --- what a hook sees ---------------------------------------------------------------


def test_a_hook_sees_operands_and_result_of_plain_operations(xp):
    seen = []
    x = xp.asarray(np.array([1.0, 2.0, 3.0], "float32"))
    with debug.hook(
        before=lambda a: seen.append((a.op, a.operands, a.params)),
        after=lambda a, out: seen.append(out),
    ):
        out = ops.sum(x)
    assert seen == [("sum", (x,), {"axes": (0,), "keepdims": False}), out]


def test_a_hook_sees_forward_and_then_backward():
    assert seen_by_hook(lambda: fdbr.grad(loss)(np.ones(3))) == [
        ("forward", "tanh"),
        ("forward", "multiply"),
        ("forward", "sum"),
        ("backward", "sum"),
        ("backward", "multiply"),
        ("backward", "multiply"),
        ("backward", "tanh"),
    ]


def test_a_reverse_rule_is_told_with_its_cotangent_and_what_was_kept():
    seen = []
    with debug.hook(before=seen.append):
        fdbr.grad(lambda x: ops.sum(ops.exp(x)))(np.zeros(2))
    rule = seen[-1]
    assert (rule.direction, rule.op, rule.roles) == ("backward", "exp", ("cotangent", "kept"))
    assert [operand.tolist() for operand in rule.operands] == [[1.0, 1.0], [1.0, 1.0]]


def test_a_hook_sees_tangents_under_jvp():
    seen = []
    with debug.hook(before=seen.append):
        fdbr.jvp(ops.exp, (np.zeros(2),), (np.ones(2),))
    assert [a.direction for a in seen] == ["forward", "tangent"]
    assert seen[1].roles == ("operand", "tangent")


def test_a_hook_sees_whole_batches_under_vmap():
    shapes = []
    with debug.hook(before=lambda a: shapes.append([o.shape for o in a.operands])):
        fdbr.vmap(ops.tanh)(np.ones((5, 3)))
    assert shapes == [[(5, 3)]]


@pytest.mark.parametrize(
    "thunk",
    [
        lambda: fdbr.grad(lambda x: ops.sum(fdbr.grad(loss)(x)))(np.ones(3)),
        lambda: fdbr.hvp(loss, (np.ones(3),), (np.ones(3),)),
        lambda: fdbr.vmap(fdbr.grad(loss))(np.ones((2, 3))),
        lambda: fdbr.jacrev(lambda x: ops.tanh(x) * x)(np.ones(3)),
        lambda: fdbr.hessian(loss)(np.ones(3)),
        lambda: fdbr.linearize(loss, np.ones(3))[1](np.ones(3)),
    ],
)
def test_whatever_the_transformations_a_hook_is_given_arrays(thunk):
    kinds = set()
    with debug.hook(before=lambda a: kinds.update(map(type, a.operands))):
        thunk()
    assert kinds <= {np.ndarray, np.float64, float, int}


def test_a_nested_hook_sees_parts_of_rules_as_well():
    outer = seen_by_hook(lambda: fdbr.grad(loss)(np.ones(3)))
    every = seen_by_hook(lambda: fdbr.grad(loss)(np.ones(3)), nested=True)
    assert ("backward", "broadcast_to") in every
    assert ("backward", "broadcast_to") not in outer
    assert [one for one in every if one in outer] == outer


def test_a_part_of_a_rule_tells_whose_it_is():
    parts = []
    with debug.hook(before=lambda a: parts.append(a) if a.rule else None):
        fdbr.hvp(lambda x: ops.sum(ops.tanh(x)), (np.ones(3),), (np.ones(3),))
    assert {a.rule for a in parts} == {"tanh"}
    assert all(a.direction in ("backward", "tangent") for a in parts)


def test_checkpoint_runs_forward_again():
    block = fdbr.checkpoint(lambda x: ops.sin(ops.exp(x)))
    assert seen_by_hook(lambda: fdbr.grad(lambda x: ops.sum(block(x)))(np.ones(2))) == [
        ("forward", "exp"),
        ("forward", "sin"),
        ("forward", "sum"),
        ("backward", "sum"),
        ("forward", "exp"),
        ("forward", "sin"),
        ("backward", "sin"),
        ("backward", "exp"),
    ]


def test_operations_in_functions_with_rules_of_their_own_are_seen():
    @fdbr.custom_vjp
    def scaled(x):
        return ops.exp(x)

    scaled.defvjp(lambda x: (ops.exp(x), x), lambda x, ct: (ct * ops.cos(x),))
    seen = seen_by_hook(lambda: fdbr.grad(lambda x: ops.sum(scaled(x)))(np.ones(2)))
    assert ("forward", "exp") in seen
    assert ("backward", "cos") in seen


def test_a_pullback_from_before_the_block_is_seen_too():
    _, pullback = fdbr.vjp(loss, np.ones(3))
    seen = []
    with debug.hook(before=seen.append):
        pullback(1.0)
    assert [a.op for a in seen] == ["sum", "multiply", "multiply", "tanh"]
    assert {a.source for a in seen} == {None}


def test_gradients_are_bitwise_the_same_in_a_block(xp, to_numpy):
    x = xp.asarray(np.linspace(-1, 1, 12).reshape(3, 4))

    for transformed in (fdbr.grad(_deep), fdbr.grad(lambda x: ops.sum(fdbr.grad(_deep)(x) ** 2))):
        with debug.timer(), debug.memory(), debug.nan_check(), debug.hook(nested=True):
            inside = transformed(x)
        assert (to_numpy(inside) == to_numpy(transformed(x))).all()


def _deep(x):
    h = fdbr.checkpoint(lambda x: ops.tanh(x @ x.T))(x)
    return ops.sum(ops.softmax(h) * ops.sort(h, axis=-1))


# --- lines --------------------------------------------------------------------------


def test_the_line_is_the_users_not_the_librarys():
    layer = nn.Linear.init(fdbr.random.key(0), 3, 2)

    def f(layer, x):
        h = layer(x)
        h = np.maximum(h, 0.0)
        return np.mean(
            h**2,
        )

    with debug.timer() as times:
        fdbr.grad(f)(layer, np.ones((4, 3), "float32"))
    assert lines(times.rows) == {
        "h = layer(x)",
        "h = np.maximum(h, 0.0)",
        "h**2,",
        "return np.mean(",
    }


def test_backward_and_second_order_have_the_line_of_the_forward_pass():
    def f(x):
        h = ops.tanh(x)
        h = h * h
        return ops.sum(h)

    with debug.timer() as times:
        fdbr.hvp(f, (np.ones(3),), (np.ones(3),))
    places = {(row.op, row.source.text) for row in times.rows if row.direction == "backward"}
    assert places == {
        ("tanh", "h = ops.tanh(x)"),
        ("multiply", "h = h * h"),
        ("sum", "return ops.sum(h)"),
        ("add", "fdbr.hvp(f, (np.ones(3),), (np.ones(3),))"),  # of the cotangents of h
    }


def test_code_without_a_file_has_lines_too():
    code = compile("import numpy as np\ny = ops.tanh(np.ones(3))\n", "<cell 1>", "exec")
    linecache.cache["<cell 1>"] = (0, None, code.co_filename.splitlines(), "<cell 1>")
    with debug.timer() as times:
        exec(code, {"ops": ops})
    del linecache.cache["<cell 1>"]
    (row,) = times.rows
    assert (row.source.file, row.source.line, row.source.function) == ("<cell 1>", 2, "<module>")


# --- printing -----------------------------------------------------------------------


def test_printing_prints_a_line_for_each_application(capsys):
    with debug.printing():
        ops.tanh(np.zeros((2, 3), "float32"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("forward tanh(float32[2,3]) -> float32[2,3]  at test_hooks.py:")


def test_printing_goes_to_a_file():
    file = io.StringIO()
    with debug.printing(file, nested=True):
        fdbr.grad(loss)(np.ones(3))
    text = file.getvalue()
    assert "backward broadcast_to(float64[], to=(3,)) in the rule of sum -> float64[3]" in text


# --- profiles -----------------------------------------------------------------------


def table(thunk, block=debug.timer):
    with block() as profile:
        thunk()
    return profile.table


def test_a_timer_counts_calls_by_operation_direction_and_line():
    def f(x):
        for _ in range(3):
            x = ops.tanh(x)
        return ops.sum(x)

    times = table(lambda: fdbr.grad(f)(np.ones(3)))
    counts = {(row.op, row.direction): row.calls for row in times.rows}
    assert counts == {
        ("tanh", "forward"): 3,
        ("tanh", "backward"): 3,
        ("sum", "forward"): 1,
        ("sum", "backward"): 1,
    }


@pytest.mark.parametrize("block", [debug.timer, debug.memory])
def test_tables_add_up_however_they_are_put_together(block):
    whole = table(lambda: fdbr.hvp(_deep, (np.ones((3, 3)),), (np.ones((3, 3)),)), block)
    for keys in (("op",), ("source",), ("direction",), ("op", "direction")):
        part = whole.by(*keys)
        assert part.calls == whole.calls
        assert np.isclose(part.total, whole.total, rtol=1e-12)
        assert max(row.largest for row in part.rows) == max(row.largest for row in whole.rows)
        assert len({tuple(getattr(row, key) for key in keys) for row in part.rows}) == len(
            part.rows
        )


def test_rows_are_sorted_and_within_the_time_that_passed():
    x = np.ones((200, 200))

    def f(x):
        return ops.sum(ops.sin(x) @ ops.tanh(x))

    entered = time.perf_counter()
    times = table(lambda: fdbr.grad(f)(x))
    elapsed = time.perf_counter() - entered
    totals = [row.total for row in times.rows]
    assert totals == sorted(totals, reverse=True)
    assert 0 < times.total < elapsed
    assert all(0 < row.largest <= row.total for row in times.rows)


def test_a_checkpoint_does_not_count_what_runs_in_it():
    def slow(x):
        for _ in range(20):
            x = ops.sin(x)
        return x

    x = np.ones(200_000)
    times = table(lambda: fdbr.grad(lambda x: ops.sum(fdbr.checkpoint(slow)(x)))(x)).by("op")
    seconds = {row.op: row.total for row in times.rows}
    assert seconds["checkpoint"] < seconds["sin"] / 2


def test_a_function_with_a_rule_of_its_own_is_timed():
    @fdbr.custom_vjp
    def slow(x):
        return sum(np.sin(x) for _ in range(20))

    slow.defvjp(
        lambda x: (sum(np.sin(x) for _ in range(20)), x), lambda x, ct: (20 * np.cos(x) * ct,)
    )
    times = table(lambda: fdbr.grad(lambda x: ops.sum(slow(x)))(np.ones(100_000)))
    assert times.rows[0].op == "custom_vjp(slow)"
    assert {row.direction for row in times.rows if row.op == "custom_vjp(slow)"} == {
        "forward",
        "backward",
    }


def test_the_cost_of_other_observers_is_not_counted():
    class Slow(Observer):
        def sees(self, application, inside):
            return True

        def before(self, application):
            time.sleep(0.01)

    with observing(Slow()), debug.timer() as times, observing(Slow()):
        fdbr.grad(loss)(np.ones(3))
    assert times.total < 0.02


def test_work_on_a_gpu_is_waited_for(monkeypatch):
    waits = []
    stream = SimpleNamespace(synchronize=lambda: waits.append(1))
    cupy = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream, runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array = type("ndarray", (), {"__module__": "cupy"})()
    application = place().application("mine", (1.0,))
    with debug.timer():
        run(application, lambda: array)
    assert waits == [1]


def test_blocks_nest_and_see_what_is_in_them():
    with debug.timer() as outer:
        ops.tanh(np.ones(3))
        with debug.timer() as inner:
            ops.exp(np.ones(3))
        ops.sin(np.ones(3))
    assert {row.op for row in inner.rows} == {"exp"}
    assert {row.op for row in outer.rows} == {"tanh", "exp", "sin"}


def test_a_block_inside_of_a_transformed_function_sees_its_forward_part():
    seen = []

    def f(x):
        with debug.timer() as times:
            y = ops.tanh(x)
        seen.extend(row.op for row in times.rows)
        return ops.sum(y * y)

    fdbr.grad(f)(np.ones(3))
    assert seen == ["tanh"]


def test_a_table_prints_as_text():
    with debug.timer() as times:
        fdbr.grad(loss)(np.ones(3))
    head, *body, last = str(times).splitlines()
    assert head.split() == ["op", "direction", "source", "calls", "total", "share", "largest"]
    assert len(body) == len(times.rows)
    assert last.startswith("total")
    assert "test_hooks.py" in body[0]
    assert str(debug.Table((), "s")).splitlines()[1].startswith("total")


def test_a_table_refuses_keys_that_it_does_not_have():
    with debug.timer() as times:
        ops.tanh(np.ones(3))
    with pytest.raises(ValueError, match=r"some of \('op', 'direction', 'source'\)"):
        times.by("line")
    with pytest.raises(ValueError, match=r"some of \('op',\), not by \('source',\)"):
        times.by("op").by("source")


# --- memory -------------------------------------------------------------------------


def test_memory_counts_the_arrays_that_are_made_and_no_views(xp):
    x = xp.asarray(np.ones((10, 10), "float32"))
    with debug.memory() as sizes:
        y = ops.exp(x)
        y = ops.reshape(y, (100,))
        y = ops.permute_dims(ops.reshape(y, (5, 20)), (1, 0))
        ops.sum(y, axis=0)
    made = {row.op: row.total for row in sizes.rows}
    assert (made["exp"], made["reshape"], made["sum"]) == (400, 0, 20)
    assert sizes.total == 420


def test_memory_tells_forward_from_backward():
    with debug.memory() as sizes:
        fdbr.grad(lambda x: ops.sum(ops.tanh(x)))(np.ones(1000))
    counts = {(row.op, row.direction): row.total for row in sizes.rows}
    assert counts["tanh", "forward"] == counts["tanh", "backward"] == 8000
    assert counts["sum", "forward"] == 8


@elementwise(x=lambda out: out)
def exponential_in_halves(xp, x):
    half = xp.exp(0.5 * x)
    return half * xp.exp(0.5 * x)  # three arrays at once


def test_memory_of_temporaries_counts_what_an_operation_needs_in_between():
    x = np.ones(100_000)
    with debug.memory(temporary=True) as sizes:
        ops.exp(x)
        exponential_in_halves(x)
        ops.softmax(x)  # which computes in the place of its result, by buffers of a few rows
    largest = {row.op: row.largest for row in sizes.rows}
    assert 800_000 <= largest["exp"] < 900_000
    assert 2_400_000 <= largest["exponential_in_halves"] < 2_500_000
    assert 800_000 <= largest["softmax"] < 1_000_000


def test_an_application_knows_its_place():
    assert place().direction == "forward"
    application = place().application("mine", (1.0,), {"axis": 0})
    assert str(application) == "mine(float 1.0, axis=0)"
    assert run(application, lambda: place().rule) == "mine"
    assert place().rule is None


# --- only some operations -----------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("tanh", {"tanh"}),
        (ops.tanh, {"tanh"}),
        (ops.sum, {"sum"}),
        (["tanh", ops.multiply], {"tanh", "multiply"}),
        ((), set()),
        (None, {"tanh", "multiply", "sum"}),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_hook_on_some_operations_is_told_of_these_alone(only, expected, nested):
    seen = []
    note = lambda application: seen.append((application.op, application.direction))
    with debug.hook(before=note, only=only, nested=nested):
        fdbr.grad(loss)(np.ones(3))
    assert {op for op, _ in seen} == expected if not nested else {op for op, _ in seen} >= expected
    if only is not None:
        assert {op for op, _ in seen} == expected
        assert {direction for _, direction in seen} == ({"forward", "backward"} if seen else set())


def test_printing_follows_some_operations_too():
    file = io.StringIO()
    with debug.printing(file, only="tanh"):
        fdbr.grad(loss)(np.ones(3))
    assert [line.split("(")[0] for line in file.getvalue().splitlines()] == [
        "forward tanh",
        "backward tanh",
    ]


def test_an_operation_that_there_is_not_is_refused_by_name():
    with (
        pytest.raises(ValueError, match=r"fdbr\.debug\.hook: 'tahn' is no operation.*'tanh'"),
        debug.hook(only="tahn"),
    ):
        pass
    with (
        pytest.raises(TypeError, match=r"fdbr\.debug\.printing: only must be an operation"),
        debug.printing(only=3),
    ):
        pass
