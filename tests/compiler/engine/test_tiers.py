"""How programs come to be compiled: no call waits, unless it is asked to."""

import itertools
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.runtime import compiling
from fdbr.compiler.backend import backend_of
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.engine import tiers
from fdbr.compiler.engine.tiers import set_patience
from fdbr.compiler.interpret import stepwise

SHAPE = 64, 48


@pytest.fixture
def captured_at_once() -> None:
    """Not here."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Programs run step by step at first, and nothing has been compiled before."""
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_loaded", {})
    before = set_patience(1.0)
    yield
    set_patience(before)


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


def is_ready(f: Any) -> bool:
    """Whether a jitted function has no kernel to wait for."""
    return any(kept.compiled and not kept.waiting for kept in f.report().traces)


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_function_runs_as_it_is_then_step_by_step_and_compiled_at_last() -> None:
    set_patience(1e-9)
    jitted, desired = fdbr.jit(step), step(*arguments())
    agrees(jitted(*arguments()), desired)
    assert "run without a trace 1 time" in str(jitted.report())
    agrees(jitted(*arguments()), desired)
    assert "not compiled so far" in str(jitted.report())
    agrees(jitted(*arguments()), desired)
    assert jitted.report().traces[0].compiled
    until(lambda: (jitted(*arguments()), is_ready(jitted))[1])
    agrees(jitted(*arguments()), desired)
    assert "after the passes, replayed" in str(jitted.report())


def test_a_program_step_by_step_takes_one_input_twice() -> None:
    x = np.arange(3.0)
    program = capture(lambda leaves: [leaves[0] * leaves[1]], "f", [x, x + 1]).program
    first, second = program.inputs
    run = stepwise([first, second, first], program.steps, [*program.outputs, first])
    product, again = run(x, x + 1, x)
    np.testing.assert_array_equal(product, x * (x + 1))
    np.testing.assert_array_equal(again, x)


def test_gradients_of_a_jitted_function_are_compiled_too() -> None:
    set_patience(1e-9)

    def f(x: Any) -> Any:
        return np.sum(np.tanh(x) ** 2 * np.exp(-x))

    x = np.linspace(-1, 1, 3000)
    jitted = fdbr.jit(f)
    for _ in range(6):
        agrees(fdbr.grad(jitted)(x), fdbr.grad(f)(x))
    assert len(jitted.report().traces) == 1


def test_compile_waits_until_no_kernel_is_left() -> None:
    jitted = fdbr.jit(step).compile(*arguments())
    kept = jitted.report().traces[0]
    assert kept.compiled
    assert not kept.waiting
    agrees(jitted(*arguments()), step(*arguments()))


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
from fdbr import ops

rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 20)).astype("f"), rng.normal(size=(64, 1)).astype("f")

@fdbr.jit(reproducible=True)
def step(w, x, y):
    def loss(w):
        return np.mean((ops.gelu(x @ w[0]) @ w[1] - y) ** 2)
    value, slopes = fdbr.value_and_grad(loss)(w)
    return [p - 0.05 * g for p, g in zip(w, slopes)], value

start, stop, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if start:
    held = np.load(path)
    w = [held["a"], held["b"]]
else:
    w = [rng.normal(size=s).astype("f") / 5 for s in ((20, 30), (30, 1))]
for _ in range(start, stop):
    w, value = step(w, x, y)
np.savez(path, a=w[0], b=w[1])
"""


def test_reproducible_training_that_is_resumed_ends_with_the_same_bits(tmp_path: Any) -> None:
    """In one process, and in two; with nothing on disk, and with everything."""

    def run(name: str, *iterations: int) -> Any:
        path = str(tmp_path / f"{name}.npz")
        for start, stop in itertools.pairwise(iterations):
            command = [sys.executable, "-c", textwrap.dedent(TRAINING), str(start), str(stop), path]
            subprocess.run(command, check=True, timeout=300)
        found = np.load(path)
        return found["a"], found["b"]

    whole = run("whole", 0, 7)
    for a, b in zip(whole, run("resumed", 0, 3, 7), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_first_reproducible_call_has_the_bits_of_all_others() -> None:
    jitted = fdbr.jit(step, reproducible=True)
    first = jitted(*arguments())
    for _ in range(3):
        for a, b in zip(tree.leaves(first), tree.leaves(jitted(*arguments())), strict=True):
            np.testing.assert_array_equal(a, b)


def test_reproducible_must_be_a_truth_value() -> None:
    with pytest.raises(TypeError, match=r"fdbr\.jit: reproducible must be True or False, not"):
        fdbr.jit(step, reproducible="yes")  # type: ignore[call-overload]


# --- where the compiler itself fails ------------------------------------------------


def boom(program: Any) -> Any:
    """A pass with a defect."""
    raise IndexError("no such step")


def with_iterations(x: Any) -> Any:
    return fdbr.scan(lambda carry, t: (np.tanh(carry * t), carry.sum()), x, np.arange(4.0))[0]


@pytest.mark.parametrize("how", ["at once", "reproducible", "ahead", "in time", "backward"])
@pytest.mark.parametrize("f", [lambda x: np.tanh(x) * 2 + 1, with_iterations])
def test_a_pass_that_fails_leaves_a_program_that_runs_step_by_step_and_says_so(f, how, monkeypatch):
    monkeypatch.setattr(tiers, "PASSES", (*tiers.PASSES[:5], boom, *tiers.PASSES[5:]))
    set_patience(1e-9 if how == "in time" else 0.0)
    jitted = fdbr.jit(f, reproducible=how == "reproducible")
    x = np.linspace(0.1, 1.0, 5)
    called, desired = jitted, f
    if how == "backward":
        called, desired = (fdbr.grad(lambda x, g=g: g(x).sum()) for g in (jitted, f))

    def run() -> None:
        if how == "ahead":
            jitted.compile(x)
        for _ in range(30 if how == "in time" else 3):
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
    jitted = fdbr.jit(lambda x: np.exp(x) + 1, reproducible=True)
    monkeypatch.setattr(type(backend_of(jitted_program(jitted, x))), "generate", generate)
    jitted = fdbr.jit(lambda x: np.exp(x) * 3, reproducible=True)
    with pytest.warns(RuntimeWarning, match="the generation of code raised KeyError"):
        assert np.array_equal(jitted(x), np.exp(x) * 3)
    assert np.array_equal(jitted(2 * x), np.exp(2 * x) * 3)


def jitted_program(jitted: Any, x: Any) -> Any:
    return jitted.compile(x).programs()[0]


# --- what is said of it ---------------------------------------------------------------


def test_compile_now_compiles_in_the_first_call_and_waits():
    def f(x):
        return np.tanh(x) * 2 + np.exp(x)

    before = tiers.set_patience(1.0)
    try:
        jitted = fdbr.jit(f, compile="now")
        x = np.linspace(0.0, 1.0, 20_000)
        np.testing.assert_allclose(jitted(x), f(x), rtol=1e-13)
        (kept,) = jitted.report().traces
        assert kept.compiled
        assert kept.waiting == 0
        jitted(x)
        assert jitted.report().traces[0].runs == 1
        slope = fdbr.jit(lambda x: f(x).sum(), compile="now")
        np.testing.assert_allclose(fdbr.grad(slope)(x), 2 / np.cosh(x) ** 2 + np.exp(x), rtol=1e-12)
        assert slope.report().traces[0].compiled
    finally:
        tiers.set_patience(before)


def test_when_to_compile_is_one_of_two_words():
    with pytest.raises(
        ValueError, match=r"fdbr\.jit: compile must be 'when it pays' or 'now', not"
    ):
        fdbr.jit(np.sin, compile="soon")
    for wrong in (None, True, 3):
        with pytest.raises(TypeError, match=r"fdbr\.jit: compile must be a string"):
            fdbr.jit(np.sin, compile=wrong)


def test_the_log_says_when_a_function_is_traced_and_compiled(caplog):
    with caplog.at_level("INFO", "fdbr.jit"):
        fdbr.jit(lambda x: np.tanh(x) * 2, compile="now")(np.ones(5))
    said = [record.getMessage() for record in caplog.records]
    assert any("traced 2 steps" in text for text in said)
    assert any("compiled code is in use" in text for text in said)
    assert all(record.levelname == "INFO" for record in caplog.records)


_ENDS = """
import logging, numpy as np, fdbr
if {told}:
    logging.basicConfig(level=logging.INFO)
f = fdbr.jit(lambda x: np.sin(x) * 2)
f(np.ones(3))
"""


@pytest.mark.parametrize("told", [True, False])
def test_the_log_says_at_the_end_that_compiled_code_was_not_in_use(told):
    code = _ENDS.format(told=told)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    if told:
        assert "the process ends before compiled code is in use for <lambda>" in done.stderr
    else:
        assert done.stderr == ""


def test_a_report_speaks_of_earlier_calls_in_the_past():
    once = fdbr.jit(lambda x: np.exp(x) / 3)
    once(np.ones(3))
    text = str(once.report())
    assert "until then, its calls had taken less time than tracing it takes" in text
    assert "no call has used compiled code" in text
    once.compile(np.ones(3))
    once(np.ones(3))
    text = str(once.report())
    assert "until then, its calls had taken less time" in text
    assert "no call has used compiled code" not in text
