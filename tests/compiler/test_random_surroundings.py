"""Random programs with random control flow, dtypes and shapes, around which things change.

Jitted they give what they give in eager mode, under every transformation.  There are 10,000 with
``HYPOTHESIS_PROFILE=thorough``.
"""

import numpy as np
import pytest
from hypothesis import settings

import fdbr
from compiler.comparing import assert_same, distance, optimised, plainly
from compiler.drawing import Surroundings, random_arguments, random_program
from fdbr import tree

THOROUGH = settings.default.max_examples > 100
CHUNKS, EACH = (100, 100) if THOROUGH else (8, 2)
CALLS = 8
ULPS = 1 << 14  # a value goes through dozens of steps, some of which make differences larger
SIZES = (1, 2, 3, 5, 8)


def sum_of(f):
    return lambda *args: fdbr.ops.sum(fdbr.vmap(f)(*args))


FORMS = {
    "values": lambda f: f,
    "gradients": lambda f: fdbr.value_and_grad(f, (0, 1, 2)),
    "tangents": lambda f: (
        lambda m, v, x, i: fdbr.jvp(lambda m, v: f(m, v, x, i), (m, v), (m * 0 + 1, v))
    ),
    "batches": fdbr.vmap,
    "batches of gradients": lambda f: fdbr.vmap(fdbr.grad(f, (0, 1))),
    "gradients of batches": lambda f: fdbr.grad(sum_of(f), (0, 1)),
    "second derivatives": lambda f: fdbr.grad(
        lambda m, v, x, i: fdbr.ops.sum(fdbr.grad(f, 1)(m, v, x, i) ** 2)
    ),
}


def points(seed, form, size, dtype):
    args = random_arguments(seed, CALLS, size, dtype)
    if "batches" not in form:
        return args
    count = 2 + seed % 4
    return [
        tuple(np.stack(part) for part in zip(*[args[(i + j) % CALLS] for j in range(count)]))  # noqa: B905
        for i in range(CALLS)
    ]


def assert_near(found, desired, dtype):
    """Check that two results agree as far as numbers of a dtype can tell."""
    assert_same(found, desired, ulps=np.inf)
    kind = dtype if np.dtype(dtype).kind == "f" else np.float64
    for mine, other in zip(tree.leaves(found), tree.leaves(desired), strict=True):
        own = np.result_type(mine) if np.result_type(mine).kind == "f" else np.dtype(np.float64)
        rounding = max(1.0, np.finfo(kind).eps / np.finfo(own).eps)
        assert distance(mine, other) <= ULPS * rounding, f"{mine!r} is not {other!r}"


def near_to_another_decision(f, args, found, dtype):
    """Whether a call gives a result at a point that rounding cannot tell from this one."""
    rng = np.random.default_rng(0)
    for _ in range(16):

        def moved(leaf):
            if getattr(leaf, "dtype", np.dtype(type(leaf))).kind != "f":
                return leaf
            eps = np.finfo(getattr(leaf, "dtype", np.float64)).eps
            step = 1 + 64 * eps * rng.uniform(-1, 1, np.shape(leaf))
            return leaf * step.astype(leaf.dtype) if np.shape(leaf) else leaf * float(step)

        try:
            assert_near(found, f(*tree.map(moved, args)), dtype)
        except AssertionError:
            continue
        return True
    return False


def compare(seed):
    rng = np.random.default_rng(seed)
    form = list(FORMS)[seed % len(FORMS)]
    size, dtype = int(rng.choice(SIZES)), rng.choice([np.float64, np.float32])
    if form == "values" and rng.random() < 0.3:
        dtype = rng.choice([np.int64, np.int8, np.float16])
    around = Surroundings(rng, size, dtype if np.dtype(dtype).kind == "f" else np.float64)
    f = FORMS[form](random_program(seed, around=around))
    bitwise = plainly(f)
    compiled = fdbr.jit(f) if seed % 64 == 0 else optimised(f)
    for args in points(seed, form, size, dtype):
        try:
            desired = f(*args)
        except (OverflowError, ValueError) as error:  # an infinity or a NaN has no integer
            for jitted in (bitwise, compiled):
                with pytest.raises(type(error)):
                    jitted(*args)
            around.change()
            continue
        assert_same(bitwise(*args), desired, ulps=64 if "batches" in form else 0)
        if dtype is not np.float16:
            found = compiled(*args)
            try:
                assert_near(found, desired, dtype)
            except AssertionError:
                if not near_to_another_decision(f, args, found, dtype):
                    raise
        around.change()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_jitted_programs_give_what_eager_ones_give_while_things_around_them_change(chunk):
    for seed in range(EACH * chunk, EACH * (chunk + 1)):
        try:
            with np.errstate(all="ignore"):  # float32 overflows in some of them
                compare(seed)
        except Exception as error:
            error.add_note(f"the program of seed {seed}: compare({seed}) runs it")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", [8433, 8923])
def test_programs_that_were_wrong_once_are_right(seed):
    with np.errstate(all="ignore"):  # batches whose examples meet, or end, in two dtypes
        compare(seed)
