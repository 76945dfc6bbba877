"""Random programs of operations: fdbr beside differences of values, JAX and PyTorch.

JAX and PyTorch are no dependencies of the tests: where they are not installed, the comparison with
them is skipped.  ``python -m benchmarks.agreement`` compares more programs.
"""

import numpy as np
import pytest
from hypothesis import settings

from benchmarks.agreement.comparing import LIMIT, Worst, distance
from benchmarks.agreement.drawing import random_program
from benchmarks.agreement.libraries import FDBR, itself, load
from benchmarks.agreement.operations import OPERATIONS
from fdbr.testing import check_grads

COUNT = max(1, settings.default.max_examples // 4)


def loss_of(program):
    return lambda *inputs: program.loss(FDBR, inputs)


@pytest.mark.parametrize("seed", range(COUNT))
def test_every_transformation_of_a_smooth_program_agrees_with_differences(seed):
    program = random_program(seed, length=6, kinks=False)
    check_grads(loss_of(program), *program.inputs)


@pytest.mark.parametrize("seed", range(COUNT))
def test_compositions_of_transformations_agree_with_each_other(seed):
    program = random_program(seed)
    ours, same = load("fdbr").derivatives(program), itself(program)
    assert all(distance(ours, same, name) < LIMIT for name in ours), program


@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("name", ["jax", "torch"])
def test_values_and_derivatives_agree_with_other_libraries(name, seed):
    library = load(name)
    if library is None:
        pytest.skip(f"{name} is not installed; it is in the extra 'bench'")
    program = random_program(seed)
    ours, theirs = load("fdbr").derivatives(program), library.derivatives(program)
    away = {what: distance(ours, theirs, what) for what in ours}
    assert max(away.values()) < LIMIT, f"{away}\n{program}"


# --- the programs themselves --------------------------------------------------------


def test_a_seed_gives_the_same_program_always():
    one, same, other = random_program(7), random_program(7), random_program(8)
    assert str(one) == str(same) != str(other)
    assert loss_of(one)(*one.inputs) == loss_of(same)(*same.inputs)


def test_every_operation_occurs():
    programs = [random_program(seed) for seed in range(300)]
    texts = {instruction.text for program in programs for instruction in program.instructions}
    assert len({text.split("axis")[0] for text in texts}) > sum(map(len, OPERATIONS.values()))
    for word in "sin where max matmul einsum solve eigh svd softmax concat sort conv fft".split():
        assert any(word in text for text in texts), word


def test_every_input_and_every_result_enters_the_loss():
    for seed in range(20):
        program = random_program(seed)
        used = {i for instruction in program.instructions for i in instruction.operands}
        count = len(program.inputs) + len(program.instructions)
        assert used | set(program.weights) == set(range(count))


def test_differences_are_relative_to_the_largest_element_and_nan_is_infinitely_far():
    one = {"value": [np.array([1.0, 100.0])]}
    assert distance(one, {"value": [np.array([1.0, 101.0])]}, "value") == 0.01
    assert distance(one, {"value": [np.array([np.nan, 100.0])]}, "value") == np.inf
    assert distance(one, {"value": [np.array([1.0])]}, "value") == np.inf


def test_the_worst_disagreement_is_remembered_with_its_program():
    worst, results = Worst(), {"value": [np.array(1.0)]}
    for seed, away in ((1, 0.25), (2, 0.5), (3, 0.125)):
        found = {"value": [np.array(1.0 + away)]}
        assert worst.note(random_program(seed), results, found) == away
    assert worst.by_name == {"value": (0.5, 2)}
    assert worst.programs == 3
