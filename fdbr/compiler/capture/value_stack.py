"""The depth of a frame's value stack before each instruction, computed from its bytecode."""

import dis
import functools
from typing import Any

__all__ = ["depth_before"]

_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})


def depth_before(code: Any, offset: int) -> int | None:
    """Return the number of values on the stack before an instruction; `None` if unknown."""
    return _depths(code).get(offset)


@functools.lru_cache(1024)
def _depths(code: Any) -> dict[int, int]:
    """Return the depth before each instruction that is reachable without an exception."""
    instructions = list(dis.get_instructions(code))
    by_offset = {instruction.offset: instruction for instruction in instructions}
    following = dict(zip(by_offset, [*instructions[1:], None], strict=True))
    before: dict[int, int] = {}
    waiting: list[tuple[Any, int]] = [(instructions[0], 0)]
    while waiting:
        instruction, depth = waiting.pop()
        if instruction is None or instruction.offset in before:
            continue
        before[instruction.offset] = depth
        name = instruction.opname
        if name in _ENDS:
            continue
        arg = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
        effect = functools.partial(dis.stack_effect, instruction.opcode, arg)
        if instruction.opcode in _JUMPS:
            waiting.append((by_offset.get(instruction.argval), depth + effect(jump=True)))
        if name not in _ALWAYS:
            waiting.append((following[instruction.offset], depth + effect(jump=False)))
    return before
