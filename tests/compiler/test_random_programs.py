"""Random programs with random control flow: jitted against eager, at many points.

``HYPOTHESIS_PROFILE=thorough`` runs hundreds of them, some with kernels, which compile slowly.
"""

import numpy as np
import pytest
from hypothesis import settings

import fdbr
from compiler.comparing import assert_same, optimised, plainly
from compiler.drawing import random_arguments, random_program

THOROUGH = settings.default.max_examples > 100
COUNT = 400 if THOROUGH else 40
POINTS = 12 if THOROUGH else 5
ULPS = 4096  # a value goes through dozens of steps, some of which make differences larger


def compare(f, calls, seed):
    """Compare a function with its jitted selves: bitwise without passes, nearly with them."""
    reference = plainly(f)
    jitted = fdbr.jit(f) if THOROUGH and seed % 16 == 0 else optimised(f)
    for args in calls:
        desired = f(*args)
        assert_same(reference(*args), desired, ulps=0)
        assert_same(jitted(*args), desired, ULPS)
    return reference


@pytest.mark.parametrize("seed", range(COUNT))
def test_values_are_those_of_eager_mode(seed):
    jitted = compare(random_program(seed), random_arguments(seed, POINTS), seed)
    report = jitted.report()
    assert len(report.traces) + sum(kept.runs for kept in report.traces) >= POINTS


@pytest.mark.parametrize("seed", range(0, COUNT, 2))
def test_gradients_are_those_of_eager_mode_from_inside_and_outside(seed):
    f, calls = random_program(seed), random_arguments(seed, POINTS // 2)
    gradient = fdbr.value_and_grad(f, (0, 1, 2))
    compare(gradient, calls, seed)
    outside = fdbr.value_and_grad(plainly(f), (0, 1, 2))
    for args in calls:
        assert_same(outside(*args), gradient(*args), ULPS)


@pytest.mark.parametrize("seed", range(0, COUNT, 6))
def test_batches_in_which_every_example_goes_its_own_path_are_those_of_eager_mode(seed):
    calls = [
        tuple(np.stack(parts) for parts in zip(*random_arguments(seed + shift, 2), strict=True))
        for shift in (0, 1, 0)
    ]
    f = random_program(seed)
    compare(fdbr.vmap(f), calls, seed)
    compare(fdbr.vmap(fdbr.grad(f, (0, 1))), calls[:2], seed)


def test_a_seed_gives_the_same_program_always_and_programs_differ():
    args = random_arguments(0, 1)[0]
    values = [random_program(seed)(*args) for seed in (1, 1, 2, 3)]
    assert values[0] == values[1]
    assert len(set(values)) == 3


def test_programs_take_many_paths():
    paths = set()
    for seed in range(10):
        jitted = plainly(random_program(seed))
        for args in random_arguments(seed, 8):
            jitted(*args)
        paths.add(len(jitted.report().traces))
    assert max(paths) >= 5
