"""What declarations say of operations beside their derivatives, against what they do."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings

from fdbr.core.primitive import registry
from ops.cases import CASES, Case

OWN = [p for p in registry.values() if p.value.__module__.startswith("fdbr.")]


def test_values_that_are_said_to_be_memory_of_their_own_share_none(monkeypatch):
    """Of whatever the cases of operations run."""
    seen = set()
    watched = [p for p in OWN if p.facts.fresh]

    def watch(primitive):
        value = primitive.host

        def checked(xp, *operands, **params):
            out = value(xp, *operands, **params)
            if xp is np and isinstance(out, np.ndarray):
                seen.add(primitive.name)
                for operand in operands:
                    if isinstance(operand, np.ndarray):
                        assert not np.may_share_memory(out, operand), primitive.name
            return out

        monkeypatch.setattr(primitive, "host", checked)

    for primitive in watched:
        watch(primitive)
    for case in CASES:
        run_once(case)
    assert {"sum", "matmul", "concat", "gather", "softmax", "where", "conv"} <= seen


def run_once(case: Case) -> None:
    @settings(max_examples=1, database=None)
    @given(case.arguments)
    def run(args):
        case.function(*args)

    run()


WHOLE = [(7, 3), (-7, 3), (0, 5), (6, 2)]


@pytest.mark.parametrize("primitive", [p for p in OWN if p.facts.exact], ids=lambda p: p.name)
def test_functions_of_pythons_numbers_are_the_operations_where_nothing_is_rounded(primitive):
    params = {"exponent": 3} if primitive.name == "integer_power" else {}
    names = inspect.signature(inspect.unwrap(primitive.value)).parameters
    count = len(names) - 1 - len(params)
    for pair in WHOLE:
        numbers = pair[:count] if primitive.name != "power" else (pair[0], abs(pair[1]))
        out = primitive.value(np, *map(np.int64, numbers), **params)
        assert primitive.facts.exact(*numbers, **params) == out.item(), numbers


REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@pytest.mark.parametrize("primitive", [p for p in OWN if p.facts.fold], ids=lambda p: p.name)
def test_folds_combine_along_their_axes(primitive):
    x = np.arange(24.0).reshape(2, 3, 4) % 7
    for axes in [(0,), (1, 2), (0, 1, 2)]:
        params = {"keepdims": False} if primitive.name in ("sum", "mean") else {}
        out = primitive.value(np, x, axes=axes, **params)
        np.testing.assert_allclose(
            np.squeeze(out), np.squeeze(REDUCE[primitive.facts.fold](x, axes))
        )
