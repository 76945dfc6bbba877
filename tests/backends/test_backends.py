"""Another back end beside the CPU: passes ask it what its kernels can do, and know no other."""

import ast
from pathlib import Path

import numpy as np
import pytest
import shadow
from compiler.recorded import normal, recorded

import fdbr
from fdbr import ops
from fdbr.backends.cpu.backend import CPU
from fdbr.compiler import backend
from fdbr.compiler.backend import Backend, Costs, backend_of
from fdbr.compiler.ir.program import Fused, Small, kind_of

ROOT = Path(fdbr.__file__).parent


class Interpreter(Backend):
    """A back end whose kernels are said to do all of real numbers, and are interpreted."""

    def __init__(self) -> None:
        super().__init__(shadow.module, Costs(launch=1))
        self.programs = []

    def holds(self, kind):
        return kind.is_number or kind.is_scalar or kind.module is self.module

    def is_elementwise(self, step):
        return step.primitive.facts.elementwise

    def is_total(self, step):
        return step.primitive.facts.elementwise

    def can_fold(self, kind):
        return kind.dtype.kind == "f"

    def pays_alone(self, step):
        return True

    def generate(self, program, products=False):
        self.programs.append(program)
        return super().generate(program, products)

    @property
    def kernels(self):
        return [step for step in self.programs[-1].steps if isinstance(step, Fused)]


@pytest.fixture
def interpreter(monkeypatch):
    monkeypatch.setattr(backend, "_backends", {np: CPU})
    made = Interpreter()
    backend.register(made)
    return made


def normalised(x, weight, bias):
    x = x - ops.mean(x, axis=-1, keepdims=True)
    x = x / ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    return ops.sum(ops.tanh(x * weight + bias) ** 2)


def perceptron(x, weight, bias):
    hidden = ops.relu(x @ ops.reshape(weight, (-1, 1)) + bias)
    return ops.mean(ops.softmax(hidden, axis=-1) * ops.flip(hidden, axis=0))


def branching(x, weight, bias):
    while ops.sum(x) > 0:
        x = x - bias * bias - 0.5
    return ops.sum(ops.where(x > 0, x * weight, ops.exp(x)))


FUNCTIONS = normalised, perceptron, branching
ARGS = normal(6, 5, dtype=np.float64), normal(5, dtype=np.float64), normal(5, dtype=np.float64)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_programs_of_another_module_go_through_all_passes_and_run_by_its_back_end(f, interpreter):
    both = fdbr.value_and_grad(f, argnums=(0, 1, 2))
    expected = both(*ARGS)
    given = tuple(map(shadow.asarray, ARGS))
    jitted = fdbr.jit(both)
    for _ in range(2):
        found = jitted(*given)
        for ours, theirs in zip(fdbr.tree.leaves(found), fdbr.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(shadow.to_numpy(ours), theirs, rtol=1e-12)
    assert len(interpreter.programs) == 1
    assert interpreter.kernels, "the passes fused nothing"


def test_what_is_asked_of_the_back_end_decides_what_is_fused(interpreter):
    given = tuple(map(shadow.asarray, ARGS))
    interpreter.pays_alone = lambda step: False
    f = lambda x, weight, bias: ops.sum(ops.exp(ops.sin(x) * weight), axis=-1)
    fdbr.jit(f)(*given)
    (kernel,) = interpreter.kernels
    assert [step.primitive.name for step in kernel.steps] == ["sin", "multiply", "exp", "sum"]
    interpreter.is_elementwise = lambda step: step.primitive.name != "exp"
    fdbr.jit(f)(*given)
    (kernel,) = interpreter.kernels
    assert [step.primitive.name for step in kernel.steps] == ["sin", "multiply"]
    interpreter.is_small = lambda step: step.primitive.facts.elementwise
    fdbr.jit(lambda x: ops.exp(ops.cos(ops.sin(ops.sin(x)))))(given[0])
    assert isinstance(interpreter.programs[-1].steps[-1], Small)


def test_programs_say_on_which_module_and_device_they_run(interpreter, two_devices):
    with shadow.module.cuda.Device(1):
        x = shadow.asarray(np.ones(3))
    kind = kind_of(x)
    assert (kind.module, kind.device, str(kind)) == (shadow.module, 1, "float64[3]@shadow:1")
    assert kind != kind_of(shadow.asarray(np.ones(3)))
    assert kind_of(kind.xp.zeros(2)) == kind.array((2,))
    program, _ = recorded(lambda x: x * 2 + 1, x)
    assert backend_of(program) is interpreter
    program, _ = recorded(lambda x: x * 2 + 1, np.ones(3))
    assert backend_of(program) is CPU
    program, _ = recorded(lambda x, y: (x * 2, y * 2), x, np.ones(3))
    assert type(backend_of(program)) is Backend  # neither of them runs the whole


def test_programs_of_a_module_without_a_back_end_take_one_step_after_the_other(monkeypatch):
    monkeypatch.setattr(backend, "_backends", {np: CPU})
    given = tuple(map(shadow.asarray, ARGS))
    jitted = fdbr.jit(normalised)
    np.testing.assert_allclose(shadow.to_numpy(jitted(*given)), normalised(*ARGS), rtol=1e-12)
    (program,) = jitted.programs()
    assert not any(isinstance(step, Fused | Small) for step in program.steps)


def test_nothing_but_the_registry_knows_a_back_end_by_name():
    found = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if any(str(name).startswith("fdbr.backends.cpu") for name in names):
                found[path.relative_to(ROOT).as_posix()] = found.get(path, 0) + 1
    assert {name for name in found if not name.startswith("backends/")} == set()
