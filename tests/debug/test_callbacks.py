"""Effects: had in every call, in their order, once."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops

X = np.arange(3.0)


@pytest.fixture
def seen() -> list[Any]:
    return []


def note(seen: list[Any], *values: Any) -> None:
    debug.callback(lambda *values: seen.append([np.asarray(v).tolist() for v in values]), *values)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: f,
        lambda f: lambda x: fdbr.grad(lambda x: np.sum(f(x)))(x),
        lambda f: lambda x: fdbr.jvp(f, (x,), (x,)),
        lambda f: lambda x: fdbr.checkpoint(f)(x),
        lambda f: lambda x: fdbr.grad(lambda x: np.sum(fdbr.checkpoint(f)(x)))(x),
        lambda f: lambda x: fdbr.hvp(lambda x: np.sum(f(x)), (x,), (x,)),
    ],
)
def test_a_callback_is_called_once_under_every_transformation(
    transformed: Any, jit: bool, seen: list[Any]
) -> None:
    def f(x: Any) -> Any:
        note(seen, x * 2)
        return x**3

    function = transformed(f)
    function = fdbr.jit(function) if jit else function
    for iteration in range(1, 4):
        function(X)
        assert seen == [[[0.0, 2.0, 4.0]]] * iteration


def test_a_batch_is_seen_whole(seen: list[Any]) -> None:
    def f(x: Any) -> Any:
        note(seen, x)
        return x + 1

    fdbr.vmap(f)(X)
    fdbr.jit(fdbr.vmap(f))(X)
    assert seen == [[[0.0, 1.0, 2.0]]] * 2


def test_effects_keep_their_order_and_equal_ones_are_two(seen: list[Any]) -> None:
    @fdbr.jit
    def f(x: Any) -> Any:
        note(seen, x, 1)
        note(seen, 5.0)
        note(seen, x, 1)
        y = np.exp(x)
        note(seen, y)
        return x

    for _ in range(3):
        seen.clear()
        f(0.0)
        assert seen == [[0.0, 1], [5.0], [0.0, 1], [1.0]]


def test_a_decision_that_iterations_out_otherwise_leaves_no_effects_behind(seen: list[Any]) -> None:
    @fdbr.jit
    def f(x: Any) -> Any:
        note(seen, x)
        y = np.sum(np.sin(x))
        note(seen, y > 0)
        return y if y > 0 else -y

    for x in (X, -X, X, -X, X + 1):
        seen.clear()
        f(x)
        assert [value for (value,) in seen] == [x.tolist(), bool(np.sum(np.sin(x)) > 0)]


def test_a_step_that_fails_leaves_no_effects_behind(seen: list[Any]) -> None:
    @fdbr.jit
    def f(x: Any) -> Any:
        note(seen, x[0, 0])
        return np.linalg.inv(x)

    f(np.eye(2))
    f(np.eye(2))
    seen.clear()
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((2, 2)))
    assert seen == [[0.0]]


def test_gradients_of_a_jitted_function_have_its_effects(seen: list[Any]) -> None:
    @fdbr.jit
    def f(x: Any) -> Any:
        note(seen, np.sum(x))
        return np.sum(ops.tanh(x))

    for iteration in range(1, 4):
        fdbr.grad(f)(X)
        assert seen == [[3.0]] * iteration


def test_what_is_compiled_before_it_runs_has_its_effects_once(seen: list[Any]) -> None:
    def f(x: Any) -> Any:
        note(seen, x)
        return np.exp(x)

    exact = fdbr.jit(f)
    exact(1.0)
    exact(2.0)
    assert seen == [[1.0], [2.0]]
    fdbr.jit(f).compile(3.0)
    assert len(seen) == 2


def test_compiled_programs_have_effects_too(seen: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = np.exp(x) * 2
        note(seen, y[:2])
        return np.sum(y * x)

    x = np.zeros(5000)
    jitted = fdbr.jit(f).compile(x)
    jitted(x)
    assert seen == [[[2.0, 2.0]]]


def test_an_effect_without_operands_is_had_in_a_compiled_program(seen: list[Any]) -> None:
    def f(x: Any) -> Any:
        debug.callback(lambda: seen.append("called"))
        return ops.exp(x).T.reshape(-1) * 2.0

    x = np.ones((300, 400))
    compiled = fdbr.jit(f).compile(x)
    np.testing.assert_allclose(compiled(x), f(x))
    assert seen == ["called", "called"]


def test_print_formats_values(capsys: pytest.CaptureFixture[str]) -> None:
    @fdbr.jit
    def f(x: Any) -> Any:
        debug.print("{} and {y:.2f}", x, y=x[0])
        return x

    f(np.ones(2))
    f(np.zeros(2))
    assert capsys.readouterr().out == "[1. 1.] and 1.00\n[0. 0.] and 0.00\n"


def test_what_callbacks_are_given_cannot_be_written_to() -> None:
    def write(x: Any) -> None:
        x[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        debug.callback(write, np.zeros(2))


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match=r"fdbr\.debug\.callback: function must be a function"):
        debug.callback(3, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"fdbr\.debug\.print: template must be a string"):
        debug.print(1.0)  # type: ignore[arg-type]


def test_without_jit_a_jitted_function_runs_as_it_is() -> None:
    kinds: list[Any] = []

    def f(x: Any) -> Any:
        kinds.append(type(x))
        return x + 1

    jitted = fdbr.jit(f)
    with fdbr.disable_jit():
        jitted(1.0)
        jitted(1.0)
    assert kinds == [float, float]
    assert not jitted.programs()
