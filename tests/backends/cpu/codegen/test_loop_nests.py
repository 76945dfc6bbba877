"""Loop nests compute what NumPy computes from the same expressions, whatever their schedule."""

import math
import os
from array import array

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule, Total, read, text_of
from fdbr.backends.cpu.codegen.math import functions
from fdbr.backends.cpu.codegen.nest_lowering import PADDING, lowered, wide_totals, width
from fdbr.backends.cpu.runtime.machine import code, placed
from fdbr.backends.cpu.runtime.pool import launch
from fdbr.core.expr import Graph, every

_EXAMPLES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_COMPARED = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}
_UNARY = {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "rint": np.rint}
_REDUCED = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
_OTHER = {"select": np.where, "not": np.logical_not, "and": np.logical_and}


def interpreted(nest, extents, arrays):
    """Return the results of a nest computed by NumPy, with an axis for each loop."""
    reduced = tuple(k for k, kept in enumerate(nest.kept) if not kept)
    values = {}
    for node in every([*nest.outs, *nest.conditions]):
        args = [values[arg] for arg in node.args]
        if node.op == "operand":
            values[node] = arrays[node.detail[0]]
        elif node.op == "constant":
            values[node] = np.full((1,) * len(extents), node.detail[0], node.dtype)
        elif node.op == "columns":
            count = math.prod(extents[k] for k in reduced)
            values[node] = np.full((1,) * len(extents), count, node.dtype)
        elif node.op == "reduced":
            whole = [n if k in reduced else args[0].shape[k] for k, n in enumerate(extents)]
            every_one = np.broadcast_to(args[0], whole)
            exact = {"dtype": np.float64} if node.detail in ("sum", "prod") else {}
            values[node] = _REDUCED[node.detail](every_one, axis=reduced, keepdims=True, **exact)
            values[node] = values[node].astype(node.dtype)
        elif node.op in ("cast", "number"):
            values[node] = args[0].astype(node.dtype)
        else:
            values[node] = (_BINARY | _COMPARED | _UNARY | _OTHER)[node.op](*args)
    return [values[out] for out in nest.outs]


def is_full(nest, node):
    """Return whether a node has an element for each iteration of all loops."""
    if node.op == "operand":
        axes = nest.operands[node.detail[0]].axes
        return any(a != "-" and not k for a, k in zip(axes, nest.kept, strict=True))
    return node.op != "reduced" and any(is_full(nest, arg) for arg in node.args)


@st.composite
def nests(draw):
    """Draw a nest, and a schedule that fits it."""
    kept = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=4)))
    rank = len(kept)
    form = draw(st.sampled_from(["whole", "panel"])) if any(kept) and not all(kept) else "whole"
    vector = rank - 1
    if form == "panel":
        vector = draw(st.sampled_from([k for k in range(rank) if kept[k]]))
    elif not all(kept):
        vector = draw(st.sampled_from([k for k in range(rank) if not kept[k]]))
    dtype = draw(st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)]))
    graph = Graph(functions)
    accesses, numbers, flags = [], [], []
    for i in range(draw(st.integers(1, 3))):
        which = draw(st.sampled_from([dtype, dtype, dtype, np.dtype(bool)]))
        letters = draw(st.sampled_from(["cc-", "ss-"])) if i else "c"
        axes = "".join(draw(st.sampled_from(letters)) for _ in range(rank))
        accesses.append(Access(which if i else dtype, axes))
        node = graph.node("operand", accesses[i].dtype, (), (i, True))
        (flags if accesses[i].dtype == bool else numbers).append(node)
    results = []
    for _ in range(draw(st.integers(1, 7))):
        x, y = (draw(st.sampled_from(numbers)) for _ in range(2))
        op = draw(st.sampled_from(["binary", "unary", "compare", "select", "constant", "reduce"]))
        if op == "binary":
            numbers.append(graph.node(draw(st.sampled_from(sorted(_BINARY))), dtype, (x, y)))
        elif op == "unary":
            numbers.append(graph.node(draw(st.sampled_from(sorted(_UNARY))), dtype, (x,)))
        elif op == "constant":
            numbers.append(graph.constant(draw(st.sampled_from([0.5, -2.0, 3.0])), dtype))
        elif op == "compare":
            op = draw(st.sampled_from(sorted(_COMPARED)))
            flags.append(graph.node(op, np.dtype(bool), (x, y)))
        elif op == "select" and flags:
            numbers.append(graph.node("select", dtype, (draw(st.sampled_from(flags)), x, y)))
        elif op == "reduce" and not all(kept) and x.level < 2:
            how = draw(st.sampled_from(sorted(_REDUCED)))
            numbers.append(graph.node("reduced", dtype, (x,), how))
    results.append(numbers[-1])
    if draw(st.booleans()):
        results.append(draw(st.sampled_from(numbers + flags)))
    conditions = (flags[-1],) if flags and draw(st.booleans()) else ()
    totals = []
    if draw(st.booleans()):
        left = tuple(draw(st.booleans()) for _ in range(rank))
        totals.append(Total(draw(st.sampled_from(["sum", "max", "min"])), numbers[-1], left))
    nest = LoopNest(kept, tuple(accesses), tuple(results), conditions, tuple(totals))
    full = frozenset(i for i, out in enumerate(results) if is_full(nest, out))
    totals = [total for total in totals if is_full(nest, total.node)]
    nest = nest._replace(totals=tuple(totals), broadcast=full)
    masked, exact, short = (draw(st.booleans()) for _ in range(3))
    schedule = Schedule(vector, masked=masked, exact=exact, short=short)
    return nest, schedule, form == "panel"


def run(nest, schedule, panels, kernel, extents, arrays):
    """Return a kernel's results and totals, and whether the conditions held."""
    outs = []
    for i, out in enumerate(nest.outs):
        every_loop = i in nest.broadcast or all(nest.kept)
        shape = [n if every_loop or k else 1 for n, k in zip(extents, nest.kept, strict=True)]
        outs.append(np.full(shape, 77, out.dtype))
    sizes = list(extents)
    for access in nest.operands:
        sizes += [k for k, a in enumerate(access.axes) if a == "s"]
    units = [n for k, n in enumerate(extents) if nest.kept[k] and k != schedule.vector]
    flat = all(nest.kept) and len(extents) == 1
    number = extents[0] if flat else math.prod(units) * (panels or 1)
    parts = 1 if flat else min(2, number)
    totals, wide = [], []
    for total in nest.totals:
        shape = [n if left else 1 for n, left in zip(extents, total.left, strict=True)]
        totals.append(np.full((parts, *shape), 77, total.node.dtype))
        wide.append(np.full((parts, math.prod(shape) + PADDING), 77.0))
    wide = [wide[k] for k in wide_totals(nest)]
    failed = np.zeros(1, np.uint8)
    table = [*arrays, np.array(sizes), *outs, *totals, *wide, *[failed] * bool(nest.conditions)]
    words = array("q", map(id, table))
    launch(kernel, words.buffer_info()[0], number, 16 if flat else 1, parts)
    joined = [_REDUCED[total.how](x, 0) for total, x in zip(nest.totals, totals, strict=True)]
    return [*outs, *joined], not failed[0]


@given(st.data())
@settings(max_examples=_EXAMPLES)
def test_kernels_compute_what_numpy_computes_for_all_sizes(data):
    nest, schedule, panelled = data.draw(nests())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    beside = data.draw(st.integers(1, 200))
    lanes = width([*nest.outs, *nest.conditions, *[total.node for total in nest.totals]])
    if panelled:
        schedule, _ = schedule.panelled(beside, lanes)
    known = len(nest.kept) > 1 or not nest.kept[0]  # otherwise threads share the vectorised loop
    known = known and data.draw(st.booleans())
    if known:
        lanes //= 2 if schedule.half else 1
        masked = schedule.masked if panelled else beside < lanes
        few = data.draw(st.booleans())
        schedule = schedule._replace(masked=masked, few=few, rest=beside % lanes)
    source = text_of(nest, schedule)
    assert text_of(*read(source)) == source
    kernel = placed("kernel", code(lowered(*read(source), objects=True)))
    for most in (3, 9, 40):
        extents = [int(n) for n in rng.integers(1, most + 1, len(nest.kept))]
        panels = 0
        if panelled:
            lanes = width([*nest.outs, *nest.conditions, *[total.node for total in nest.totals]])
            more = 0 if beside < 4 * lanes else int(rng.integers(3)) * schedule.panel * lanes
            extents[schedule.vector] = beside + more
            like, panels = schedule.panelled(beside + more, lanes)
            assert like._replace(few=False, rest=-1) == schedule._replace(few=False, rest=-1)
        elif known:
            more = 0 if beside < lanes else int(rng.integers(3)) * lanes
            extents[schedule.vector] = beside + more
        elif not schedule.masked:
            extents[schedule.vector] += 16
        arrays = []
        for access in nest.operands:
            shape = [1 if a == "-" else n for n, a in zip(extents, access.axes, strict=True)]
            wide = [n + 2 if "s" in access.axes else n for n in shape]
            x = rng.normal(size=wide)
            x = x > 0 if access.dtype == bool else (np.round(4 * x) / 4).astype(access.dtype)
            x = x[tuple(slice(n) for n in shape)]
            arrays.append(x)
        found, held = run(nest, schedule, panels, kernel, extents, arrays)
        with np.errstate(all="ignore"):
            desired = interpreted(nest, extents, arrays)
            wanted = interpreted(nest._replace(outs=nest.conditions), extents, arrays)
            for total in nest.totals:
                (whole,) = interpreted(nest._replace(outs=(total.node,)), extents, arrays)
                axes = tuple(k for k, left in enumerate(total.left) if not left)
                exact = {"dtype": np.float64} if total.how == "sum" else {}
                whole = np.broadcast_to(whole, extents)
                desired.append(_REDUCED[total.how](whole, axis=axes, keepdims=True, **exact))
        assert held == all(np.all(flags) for flags in wanted)
        exact = not any(node.op == "reduced" for node in every(nest.outs)) and not nest.totals
        for one, other in zip(found, desired, strict=True):
            other = np.broadcast_to(other, one.shape)
            if exact:
                np.testing.assert_array_equal(one, other)
            else:
                tolerance = 1e-4 if one.dtype == np.float32 else 1e-10
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
