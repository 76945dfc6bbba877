"""No operation goes unchecked: the registry of primitives and the public names, walked."""

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sizes import use_kernels_from

import fdbr
from fdbr import ops
from fdbr.core.primitive import Primitive, registry
from fdbr.ops.declare import Unknown
from fdbr.testing import assert_allclose
from ops import reasons
from ops.cases import CASES, Case, bent, few
from ops.cases_scipy import SPARSE, SPECIAL
from ops.reasons import UNKNOWN, WITHOUT_CASE, WITHOUT_DERIVATIVE, X


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
    return {
        i: rules[i].pull
        for i in range(count)
        if rules[i] is not None and not isinstance(rules[i], Unknown)
    }


def unknown_of(primitive: Primitive) -> list[int]:
    """The operands by which no derivative is known."""
    rules = primitive.rules
    return (
        [i for i, rule in enumerate(rules) if isinstance(rule, Unknown)]
        if isinstance(rules, list)
        else []
    )


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


class Walk:
    """What the cases run: reverse rules, and primitives under `jvp` and under `vmap`."""

    def __init__(self) -> None:
        self.cotangents_in: set[tuple[str, Any]] = set()
        self.tangent_out: set[str] = set()
        self.batched: set[str] = set()

    def note(self, primitive: Primitive, attribute: str, seen: set[str]) -> Iterator[None]:
        """Have a primitive tell when one of its rules is run, for a while."""
        rule = getattr(primitive, attribute)

        def noted(*args: Any) -> Any:
            seen.add(primitive.name)
            return rule(*args)

        setattr(primitive, attribute, noted)
        yield
        setattr(primitive, attribute, rule)

    def run(self, case: Case) -> None:
        """The derivatives of a case in two orders, its `jvp`, and ``jvp(vmap(grad))``."""

        def gradient(args: Any) -> Any:
            out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
            self.cotangents_in |= rules_on_tape([node for node, _ in pullback._ends])
            return fdbr.tree.leaves(pullback(np.ones(out.shape, dtype=out.dtype)))

        @few(40)
        @given(case.arguments)
        def check(args):
            _, pullback = fdbr.vjp(gradient, args)
            self.cotangents_in |= rules_on_tape([node for node, _ in pullback._ends])
            axes = [0 if x.dtype.kind == "f" else None for x in args]
            tangents = [x if a == 0 else None for x, a in zip(args, axes, strict=True)]
            fdbr.jvp(case.function, args, tangents)
            batch = [np.stack([x]) if a == 0 else x for x, a in zip(args, axes, strict=True)]
            tangents = [x if a == 0 else None for x, a in zip(batch, axes, strict=True)]
            fdbr.jvp(fdbr.vmap(lambda *args: gradient(args), axes), batch, tangents)

        check()


@pytest.fixture(scope="module")
def walk() -> Walk:
    """All cases, run."""
    walk = Walk()
    notes = [
        note
        for primitive in primitives().values()
        for note in (
            walk.note(primitive, "batch", walk.batched),
            *(
                [walk.note(primitive, "forward", walk.tangent_out)]
                if has_derivative(primitive)
                else []
            ),
        )
    ]
    for note in notes:
        next(note)
    for case in (*CASES, *SPECIAL, *SPARSE):
        walk.run(case)
    with pytest.MonkeyPatch.context() as patch:  # large arrays have primitives of their own
        use_kernels_from(0, patch)
        for case in CASES:
            if case.op in ("var", "mean_squared_error", "softmax_cross_entropy"):
                walk.run(case)
    for _, call in WITHOUT_DERIVATIVE.values():
        fdbr.vmap(call)(np.stack([X]))
    for name in UNKNOWN:
        fdbr.vmap(getattr(ops.special, name))(*np.ones((registered(name), 1)))
    for note in notes:
        next(note, None)
    return walk


def test_every_primitive_has_the_rules_of_every_transformation():
    for name, primitive in primitives().items():
        assert primitive.batch is not None, f"{name} says not how it acts on a batch"
        if has_derivative(primitive):
            assert primitive.forward is not None, f"{name} has no forward rule"


@pytest.mark.slow
def test_the_gradient_of_every_primitive_is_checked_by_every_operand(walk):
    unchecked = [
        f"{name}, operand {number}"
        for name, primitive in primitives().items()
        if has_derivative(primitive)
        for number, pull in pulls_of(primitive).items()
        if (name, getattr(pull, "__func__", pull)) not in walk.cotangents_in
    ]
    assert not unchecked, f"add cases to tests/ops/cases.py for {unchecked}"


def test_every_primitive_is_differentiated_forward_and_run_in_batches_by_a_case(walk):
    differentiable = {name for name, p in primitives().items() if has_derivative(p)}
    unchecked = differentiable - walk.tangent_out | set(primitives()) - walk.batched
    assert not unchecked, f"add cases to tests/ops/cases.py for {sorted(unchecked)}"


def test_every_primitive_without_a_derivative_is_known_with_its_reason():
    constant = {name for name, p in primitives().items() if not has_derivative(p)}
    assert constant == {*WITHOUT_DERIVATIVE, *UNKNOWN}


def registered(name: str) -> int:
    """How many operands a primitive has."""
    return len(registry[name].rules)


def callable_by(name: str) -> bool:
    """Whether it is public, and takes numbers that are not whole: Hermite's degrees are."""
    return name in ops.special.__all__ and "hermite" not in name


@pytest.mark.filterwarnings("ignore")  # what other arguments than whole ones are, does not matter
@pytest.mark.parametrize(
    "name", [name for name, p in primitives().items() if unknown_of(p) and callable_by(name)]
)
def test_where_no_derivative_is_known_there_is_an_error_and_no_zero(name):
    primitive, count = registry[name], registered(name)
    for number in range(count):

        def call(x, number=number):
            return primitive.apply(*(x if i == number else 1.0 for i in range(count)))

        if number in unknown_of(primitive):
            message = rf"scipy\.special\.{name}: no derivative in \w+ is known.*stop_gradient"
            with pytest.raises(TypeError, match=message):
                fdbr.vjp(call, 1.0)
            with pytest.raises(TypeError, match=message):
                fdbr.jvp(call, (1.0,), (1.0,))
            fdbr.vjp(lambda x, call=call: call(fdbr.stop_gradient(x)), 1.0)
        else:
            fdbr.vjp(call, 1.0)


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_what_has_no_derivative_leaves_the_tape(name):
    reason, call = WITHOUT_DERIVATIVE[name]
    out, pullback = fdbr.vjp(lambda x: (call(x), x), X)
    assert pullback._ends[0][0] is None, reason
    assert isinstance(out[0], np.ndarray | np.generic)
    np.testing.assert_array_equal(out[0], call(X))
    (gradient,) = pullback((None, np.ones_like(X)))
    np.testing.assert_array_equal(gradient, np.ones_like(X))


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_what_has_no_derivative_has_a_zero_tangent_and_acts_on_batches(name):
    _, call = WITHOUT_DERIVATIVE[name]
    out, tangent = fdbr.jvp(call, (X,), (np.ones_like(X),))
    np.testing.assert_array_equal(out, call(X))
    assert tangent is None or not np.any(tangent)
    batch = np.stack([X, X[::-1], 3 - X])  # of other signs, and in other orders
    assert_allclose(fdbr.vmap(call)(batch), np.stack([call(x) for x in batch]))
    assert_allclose(
        fdbr.vmap(fdbr.grad(lambda x: ops.sum(x * x + np.mean(call(x)))))(batch), 2 * batch
    )


def public_names() -> set[str]:
    """The functions and constants of `ops` and its extensions, as cases name them."""
    return {
        prefix + name
        for prefix, module in (
            ("", ops),
            ("linalg.", ops.linalg),
            ("fft.", ops.fft),
            ("special.", ops.special),
        )
        for name in getattr(module, "__all__", dir(module))
        if not name.startswith("_") and not isinstance(getattr(module, name), types.ModuleType)
    }


def test_every_public_operation_has_a_case_or_a_reason_for_none():
    public = public_names()
    excused = set().union(*WITHOUT_CASE.values())
    constant = {name.removeprefix("real_") for name in WITHOUT_DERIVATIVE}
    covered = {case.op for case in (*CASES, *SPECIAL)}
    # Those of an extension are the functions of `ops`, or have a case by their bare name.
    bare = {name for name in public if name.rpartition(".")[2] in public & covered | covered}
    constant |= {f"special.{name}" for name in (*UNKNOWN, "gammasgn", "round")}
    covered |= {"special.jn", "special.psi"}  # other names of jv and digamma
    missing = public - covered - excused - constant - bare
    assert not missing, f"add a case to tests/ops/cases.py for {sorted(missing)}"
    assert not excused & covered
    assert excused <= public


def test_reasons_are_of_operations_and_cases_that_exist():
    assert set(reasons.REAL) | set(reasons.DECIDING) <= {case.op for case in CASES}
    assert set(reasons.REAL_CASES) <= {case.name for case in CASES}


def test_names_of_cases_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)
