"""The first call with arguments of a signature compiles, and all calls give the same bits."""

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree
from fdbr.compiler.backend import backend_of
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.engine import compile
from fdbr.compiler.interpret import stepwise
from fdbr.control_flow import body_tracing

SHAPE = 64, 48


def step(params: Any, x: Any) -> Any:
    """A gradient step of a small network, with sums, means and products of matrices."""

    def loss(params: Any) -> Any:
        weight, bias = params
        y = ops.softmax(np.tanh(x @ weight + bias), axis=-1)
        return np.mean((np.log(y + 1) * y) ** 2) + np.sum(np.exp(-y), axis=0).max()

    value, derivatives = fdbr.value_and_grad(loss)(params)
    return tree.map(lambda p, g: p - 0.1 * g, params, derivatives), value


def arguments() -> Any:
    generator = np.random.default_rng(0)
    x, weight, bias = (generator.normal(size=s) for s in (SHAPE, (48, 40), (40,)))
    return (weight, bias), x


def agrees(found: Any, desired: Any) -> None:
    for ours, theirs in zip(tree.leaves(found), tree.leaves(desired), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
        assert type(ours) is type(theirs)


def test_a_program_step_by_step_takes_one_input_twice() -> None:
    x = np.arange(3.0)
    program = capture(lambda leaves: [leaves[0] * leaves[1]], "f", [x, x + 1]).program
    first, second = program.inputs
    run = stepwise([first, second, first], program.steps, [*program.outputs, first])
    product, again = run(x, x + 1, x)
    np.testing.assert_array_equal(product, x * (x + 1))
    np.testing.assert_array_equal(again, x)


def test_the_first_call_is_compiled() -> None:
    for form in (lambda f: f, fdbr.grad):
        jitted = fdbr.jit(lambda x: np.sum(np.tanh(x) * 2 + np.exp(x)))
        form(jitted)(np.linspace(0.0, 1.0, 20_000))
        (kept,) = jitted.report().traces
        assert kept.kernels
        assert not kept.defect
        assert jitted.report().is_compiled


def test_compile_gives_nothing_up() -> None:
    jitted = fdbr.jit(step, donate_argnums=0)
    params, x = arguments()
    held = list(params)
    jitted.compile(held, x)
    agrees(held, list(params))


def test_compile_says_why_it_cannot() -> None:
    def f(x: Any) -> Any:
        return f"{x}"

    with pytest.raises(RuntimeError, match=r"cannot be compiled .* runs as it is: it makes text"):
        fdbr.jit(f).compile(1.0)


TRAINING = """
import sys
import numpy as np
import fdbr
from fdbr import ops, train

rng = np.random.default_rng(0)
x, y = rng.normal(size=(150, 20)).astype("f"), rng.normal(size=(150, 1)).astype("f")
optimizer = train.optim.adam(1e-2)

@fdbr.jit
def step(state, x, y):
    def loss(w):
        return np.mean((ops.gelu(x @ w[0]) @ w[1] - y) ** 2)
    value, slopes = fdbr.value_and_grad(loss)(state[0])
    updates, memory = optimizer.update(slopes, state[1], state[0])
    return (train.optim.apply_updates(state[0], updates), memory), value

w = [rng.normal(size=s).astype("f") / 5 for s in ((20, 30), (30, 1))]
state, total = (w, optimizer.init(w)), 0.0
for epoch in range(3):
    for i in range(0, 150, 64):  # the last batch is shorter
        state, value = step(state, x[i : i + 64], y[i : i + 64])
        total += fdbr.fori_loop(0, 3000, lambda i, c: c * 0.999 + value, value)
print(total.tobytes().hex(), *(w.tobytes().hex() for w in state[0]))
"""


def test_the_same_calls_give_the_same_bits_in_all_processes(tmp_path, monkeypatch) -> None:
    """With nothing on disk and with everything, on one thread and on two."""
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    found = set()
    for threads in ("2", "1", "2"):
        monkeypatch.setenv("FDBR_NUM_THREADS", threads)
        done = subprocess.run(
            [sys.executable, "-c", TRAINING], capture_output=True, text=True, timeout=300
        )
        assert not done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_the_first_call_has_the_bits_of_all_others() -> None:
    jitted = fdbr.jit(step)
    first = jitted(*arguments())
    for _ in range(3):
        for a, b in zip(tree.leaves(first), tree.leaves(jitted(*arguments())), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_body_of_a_long_eager_loop_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(body_tracing.Code, "compile", lambda self: made.append(self))
    code = body_tracing.Code(capture(lambda xs: [xs[0] * 2 + 1], "f", [1.0]).program, interpreted=4)
    for _ in range(4):
        assert code.run(3.0) == (7.0,)
    assert not made
    monkeypatch.undo()
    assert code.run(3.0) == (7.0,)
    assert code.compiled


# --- where the compiler itself fails ------------------------------------------------


def boom(program: Any) -> Any:
    """A pass with a defect."""
    raise IndexError("no such step")


def with_iterations(x: Any) -> Any:
    return fdbr.scan(lambda carry, t: (np.tanh(carry * t), carry.sum()), x, np.arange(4.0))[0]


@pytest.mark.parametrize("how", ["called", "ahead", "backward"])
@pytest.mark.parametrize("f", [lambda x: np.tanh(x) * 2 + 1, with_iterations])
def test_a_pass_that_fails_leaves_a_program_that_runs_step_by_step_and_says_so(f, how, monkeypatch):
    monkeypatch.setattr(compile, "PASSES", (*compile.PASSES[:5], boom, *compile.PASSES[5:]))
    jitted = fdbr.jit(f)
    x = np.linspace(0.1, 1.0, 5)
    called, desired = jitted, f
    if how == "backward":
        called, desired = (fdbr.grad(lambda x, g=g: g(x).sum()) for g in (jitted, f))

    def run() -> None:
        if how == "ahead":
            jitted.compile(x)
        for _ in range(3):
            assert np.array_equal(called(x), desired(x))

    with pytest.warns(RuntimeWarning, match="the pass boom raised IndexError.*defect of fdbr"):
        run()
    assert "not compiled, as the pass boom raised IndexError: no such step" in str(jitted.report())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it has been told once
        assert np.array_equal(called(x + 1), desired(x + 1))


def test_so_does_code_that_cannot_be_generated(monkeypatch):
    def generate(*args: Any) -> Any:
        raise KeyError("no such kernel")

    x = np.ones(3)
    jitted = fdbr.jit(lambda x: np.exp(x) + 1)
    monkeypatch.setattr(type(backend_of(jitted_program(jitted, x))), "generate", generate)
    jitted = fdbr.jit(lambda x: np.exp(x) * 3)
    with pytest.warns(RuntimeWarning, match="the generation of code raised KeyError"):
        assert np.array_equal(jitted(x), np.exp(x) * 3)
    assert np.array_equal(jitted(2 * x), np.exp(2 * x) * 3)


def jitted_program(jitted: Any, x: Any) -> Any:
    return jitted.compile(x).programs()[0]


# --- what is said of it ---------------------------------------------------------------


def test_the_log_says_when_a_function_is_traced_and_compiled(caplog):
    with caplog.at_level("INFO", "fdbr.jit"):
        fdbr.jit(lambda x: np.tanh(x) * 2)(np.ones(5))
    said = [record.getMessage() for record in caplog.records]
    assert any("traced 2 steps and compiled them in" in text for text in said)
    assert all(record.levelname == "INFO" for record in caplog.records)
