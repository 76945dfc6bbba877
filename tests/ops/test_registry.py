"""No operation goes unchecked: the registry of primitives and the public names, walked."""

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.core import Primitive, dispatch, registry
from ops.cases import CASES, Case, bent, few

X = np.array([[-1.25, 0.5], [2.0, -0.75]])
FLAGS = np.array([[True, False], [True, True]])

STEPS = "it is piecewise constant: its derivative is 0 wherever it exists"
TRUTH = "its values are truth values, which do not change by small amounts"
PLACES = "its values are places or counts: integers, which do not change by small amounts"
EXACT = "its operands are integers or truth values, which are not differentiated"
SHAPE = "its value depends on its operands' shape, dtype or keys alone"

WITHOUT_DERIVATIVE: dict[str, tuple[str, Any]] = {
    "real_sign": (STEPS, ops.sign),
    "floor": (STEPS, ops.floor),
    "ceil": (STEPS, ops.ceil),
    "trunc": (STEPS, ops.trunc),
    "round": (STEPS, ops.round),
    "floor_divide": (STEPS, lambda x: ops.floor_divide(x, 0.75)),
    "astype_exact": (PLACES, lambda x: ops.astype(x, np.int64)),
    "equal": (TRUTH, lambda x: ops.equal(x, 0.5)),
    "not_equal": (TRUTH, lambda x: ops.not_equal(x, 0.5)),
    "less": (TRUTH, lambda x: ops.less(x, 0.5)),
    "less_equal": (TRUTH, lambda x: ops.less_equal(x, 0.5)),
    "greater": (TRUTH, lambda x: ops.greater(x, 0.5)),
    "greater_equal": (TRUTH, lambda x: ops.greater_equal(x, 0.5)),
    "logical_and": (TRUTH, lambda x: ops.logical_and(x, FLAGS)),
    "logical_or": (TRUTH, lambda x: ops.logical_or(x, FLAGS)),
    "logical_xor": (TRUTH, lambda x: ops.logical_xor(x, FLAGS)),
    "logical_not": (TRUTH, ops.logical_not),
    "isfinite": (TRUTH, ops.isfinite),
    "isinf": (TRUTH, ops.isinf),
    "isnan": (TRUTH, ops.isnan),
    "signbit": (TRUTH, ops.signbit),
    "all": (TRUTH, lambda x: ops.all(x, axis=0)),
    "any": (TRUTH, lambda x: ops.any(x, axis=0)),
    "argmax": (PLACES, lambda x: ops.argmax(x, axis=0)),
    "argmin": (PLACES, lambda x: ops.argmin(x, axis=0)),
    "count_nonzero": (PLACES, lambda x: ops.count_nonzero(x, axis=0)),
    "bitwise_and": (EXACT, lambda x: ops.bitwise_and(x > 0, FLAGS)),
    "bitwise_or": (EXACT, lambda x: ops.bitwise_or(x > 0, FLAGS)),
    "bitwise_xor": (EXACT, lambda x: ops.bitwise_xor(x > 0, FLAGS)),
    "bitwise_left_shift": (EXACT, lambda x: ops.bitwise_left_shift(ops.argmax(x, axis=0), 1)),
    "bitwise_right_shift": (EXACT, lambda x: ops.bitwise_right_shift(ops.argmax(x, axis=0), 1)),
    "bitwise_invert": (EXACT, lambda x: ops.bitwise_invert(x > 0)),
    "full_like": (SHAPE, lambda x: ops.zeros_like(x)),
    "region": (SHAPE, lambda x: dispatch(registry["region"], (x,), {"key": (0,)})),
    "last_named": (SHAPE, lambda x: dispatch(registry["last_named"], (x,), {"key": (0,)})),
    "argsort": (PLACES, lambda x: ops.argsort(x, axis=0)),
    "searchsorted": (PLACES, lambda x: ops.searchsorted(np.array([-1.0, 1.0]), x)),
    "exponent": (PLACES, lambda x: np.frexp(x)[1]),
    "spacing": (STEPS, np.spacing),
    "gcd": (EXACT, lambda x: np.gcd(ops.argmax(x, axis=0), 2)),
    "lcm": (EXACT, lambda x: np.lcm(ops.argmax(x, axis=0), 2)),
}
"""Primitives whose derivative is zero: why, and a call of each."""

WITHOUT_CASE: dict[str, set[str]] = {
    "constants": {"e", "inf", "nan", "newaxis", "pi"},
    "new arrays, of nothing that is differentiated": {
        *("arange", "empty", "empty_like", "eye", "ones", "ones_like", "zeros", "zeros_like"),
    },
    "functions of dtypes": {"can_cast", "finfo", "iinfo", "isdtype", "result_type"},
    "dtypes": {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    },
    "composed of primitives without a derivative": {"accuracy", "isin", "nonzero"},
    "from outside, of what is not traced": {"from_dlpack"},
}
"""Public names that no case covers, by the reason."""


def primitives() -> dict[str, Primitive]:
    """The library's own; a test may have made further ones."""
    return {
        name: primitive
        for name, primitive in registry.items()
        if primitive.value.__module__.startswith("fdbr.")
    }


def has_derivative(primitive: Primitive) -> bool:
    return primitive.kind != "constant" and bool(pulls_of(primitive))


def pulls_of(primitive: Primitive) -> dict[int, Any]:
    """The reverse rules by operand: those of the first two where there may be any number."""
    rules = primitive.rules
    count = len(rules) if isinstance(rules, list) else 2
    return {i: rules[i].pull for i in range(count) if rules[i] is not None}


def rules_on_tape(nodes: Any) -> set[tuple[str, Any]]:
    """The names and reverse rules by which some nodes of the tape derive from the inputs."""
    rules, seen, stack = set(), set(), [node for node in nodes if node is not None]
    while stack:
        number, edges, name = stack.pop()
        if number not in seen:
            seen.add(number)
            rules.update((name, getattr(pull, "__func__", pull)) for _, pull, _ in edges)
            stack.extend(parent for parent, *_ in edges)
    return rules


def differentiated_by(case: Case) -> set[tuple[str, Any]]:
    """The rules that the gradient check of a case runs, in both its orders."""
    rules: set[tuple[str, Any]] = set()

    def gradient(args: Any) -> Any:
        out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
        rules.update(rules_on_tape(pullback._nodes))
        return fdbr.tree.leaves(pullback(np.ones(out.shape, dtype=out.dtype)))

    @few()
    @given(case.arguments)
    def run(args):
        _, pullback = fdbr.vjp(gradient, args)
        rules.update(rules_on_tape(pullback._nodes))

    run()
    return rules


def test_the_gradient_of_every_primitive_is_checked_by_every_operand():
    checked = set().union(*map(differentiated_by, CASES))
    unchecked = [
        f"{name}, operand {number}"
        for name, primitive in primitives().items()
        if has_derivative(primitive)
        for number, pull in pulls_of(primitive).items()
        if (name, getattr(pull, "__func__", pull)) not in checked
    ]
    assert not unchecked, f"add cases to tests/ops/cases.py for {unchecked}"


def test_every_primitive_without_a_derivative_is_known_with_its_reason():
    constant = {name for name, p in primitives().items() if not has_derivative(p)}
    assert constant == set(WITHOUT_DERIVATIVE)


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_what_has_no_derivative_leaves_the_tape(name):
    reason, call = WITHOUT_DERIVATIVE[name]
    out, pullback = fdbr.vjp(lambda x: (call(x), x), X)
    assert pullback._nodes[0] is None, reason
    assert isinstance(out[0], np.ndarray | np.generic)
    np.testing.assert_array_equal(out[0], call(X))
    (gradient,) = pullback((None, np.ones_like(X)))
    np.testing.assert_array_equal(gradient, np.ones_like(X))


def test_every_public_operation_has_a_case_or_a_reason_for_none():
    public = {
        name
        for name in dir(ops)
        if not name.startswith("_") and not isinstance(getattr(ops, name), types.ModuleType)
    }
    excused = set().union(*WITHOUT_CASE.values())
    constant = {name.removeprefix("real_") for name in WITHOUT_DERIVATIVE}
    covered = {case.op for case in CASES}
    missing = public - covered - excused - constant
    assert not missing, f"add a case to tests/ops/cases.py for {sorted(missing)}"
    assert not excused & covered
    assert excused <= public


def test_names_of_cases_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)
