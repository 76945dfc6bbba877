"""The partition of a vectorised loop into main loop and remainder, and its dependence analysis."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from fdbr.backends.cpu.codegen.held_memory import Span
from fdbr.backends.cpu.codegen.llvm_values import AccessError, Value
from fdbr.backends.cpu.runtime.machine import vector_bytes

__all__ = ["SHORT", "Piece", "check_apart", "is_written_once", "known_pieces"]

SHORT = 12  # operations; a shorter body uses several accumulators, to hide latency
# operations of a body too long to be emitted both for the main loop and for the remainder
_LONG = 24
_FEW = 4  # vectors that are unrolled completely


class Piece(NamedTuple):
    """Describe a part of a vectorised loop: its iterations, and how they are vectorised.

    Attributes
    ----------
    first, stop
        The first iteration, and the one after the last.
    lanes
        The number of lanes of a vector.
    length
        The trip count, if that is known.
    once
        Whether there is a single vector.
    masked
        Whether lanes may be masked out.
    maybe
        Whether the trip count may be 0.
    """

    first: Value
    stop: Value
    lanes: int
    length: int | None
    once: bool
    masked: bool
    maybe: bool


def is_written_once(weight: int) -> bool:
    """Return whether a body is too long to be emitted twice, in the main loop and the remainder.

    Without mask registers the answer is always no: masking costs more there than many operations.
    """
    return weight > _LONG and vector_bytes() == 64


def known_pieces(first: int, stop: int, one: int, many: int, weight: int) -> list[Piece]:
    """Return the parts of a loop of constant trip count.

    A vector has ``one`` lanes, and ``many`` iterations run at once; ``weight`` counts operations.
    """
    count = stop - first

    def piece(start: int, end: int, lanes: int) -> Piece:
        whole = not (end - start) % lanes
        given = Value("i8", str(start)), Value("i8", str(end))
        return Piece(*given, lanes, end - start, end - start <= lanes, not whole, False)

    if count <= one:
        return [piece(first, stop, 1 << max(count - 1, 1).bit_length())]
    if count <= _FEW * one and weight <= SHORT:
        return [piece(start, min(start + one, stop), one) for start in range(first, stop, one)]
    if count < 2 * many:
        many = one
    rest = count % many
    if not rest:
        return [piece(first, stop, many)]
    if is_written_once(weight):
        return [piece(first, stop, one)]
    return [piece(first, stop - rest, many), piece(stop - rest, stop, one)]


def check_apart(spans: Sequence[tuple[Span, bool]], piece: Piece, ranges: dict[str, range]) -> None:
    """Raise an error if an iteration may access memory that another one writes."""
    for (a, first), (b, second) in combinations(dict.fromkeys(spans), 2):
        if not (first or second):
            continue
        if a.memory != b.memory and a.memory and b.memory:
            continue
        if not a.memory or a.pointer != b.pointer:
            raise AccessError("memory that may be the same")
        if a.lanes > 1 and b.lanes > 1 and a.root == b.root and a.step == b.step:
            iterations, between = divmod(abs(a.offset - b.offset), abs(a.step))
            if between or not 0 < iterations < min(piece.lanes, piece.length or piece.lanes):
                continue
        one, other = _reach(a, ranges), _reach(b, ranges)
        if not (one and other) or (one[0] < other[1] and other[0] < one[1]):
            raise AccessError("a turn that may need another one")


def _reach(span: Span, ranges: dict[str, range]) -> tuple[int, int] | None:
    """Return the first element that iterations may access, and the one after the last."""
    root = ranges.get(span.root) if span.root else range(1)
    if root is None:
        return None
    far = (span.reach - 1) * span.step
    first, last = root.start + span.offset, root.stop - 1 + span.offset
    return first + min(far, 0), last + max(far, 0) + 1
