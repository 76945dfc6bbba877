"""Random programs with control flow, called with changing shapes, each call checked by `jit`.

Hypothesis draws the programs, and makes those that fail small: 5 of them, and 10,000 with
``HYPOTHESIS_PROFILE=thorough``.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from compiler.drawing import Drawing, Surroundings, program_of, random_arguments
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.passes import optimise
from fdbr.debug.sanitizer import Checked

THOROUGH = settings.default.max_examples > 100
FORMS = {
    "values": lambda f: f,
    "gradients": lambda f: fdbr.value_and_grad(f, (0, 1, 2)),
    "batches": lambda f: lambda *args: fdbr.vmap(f)(*(np.stack([arg, arg]) for arg in args)),
}


class Drawn:
    """What `Drawing` asks a random generator for, drawn by hypothesis."""

    def __init__(self, draw):
        self.draw = draw

    def integers(self, bound):
        return self.draw(st.integers(0, bound - 1))

    def random(self):
        return self.draw(st.integers(0, 15)) / 16

    def uniform(self, low, high):
        """A number that no sum of others is near to, so that no rounding decides a branch."""
        return low + (high - low) * (self.draw(st.integers(0, 96)) + 0.3719) / 97


@pytest.mark.slow
@settings(max_examples=10_000 if THOROUGH else 5)
@given(
    st.data(),
    st.lists(st.sampled_from([1, 2, 3, 5, 8]), min_size=2, max_size=4),
    st.sampled_from([*FORMS, "gradients from outside"]),
    st.integers(0, 999),
)
def test_checked_calls_of_random_programs_find_no_difference(data, sizes, form, seed):
    around = Surroundings(np.random.default_rng(seed), 1, np.float64)  # of any size
    drawing = Drawing(0, around)
    drawing.rng = Drawn(data.draw)
    f = FORMS.get(form, FORMS["values"])(program_of(drawing.block(4, 2)))
    kernels = seed % 32 == 0
    settings = {} if kernels else {"passes": (optimise,), "products": False}
    jitted = Checked(1, f, functools.partial(Code, **settings), 64)
    called = FORMS["gradients"](jitted) if form == "gradients from outside" else jitted
    with np.errstate(all="ignore"):
        for i, size in enumerate(sizes * 2):
            called(*random_arguments(seed + i % 2, 1, size)[0])
            if i % 2:
                around.change()
