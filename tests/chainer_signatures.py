"""Which differences between Chainer's signatures and ours a row's note does not state.

``chainer-signatures.json`` has the parameters of Chainer 7.8.1's functions and classes, with their
defaults, as its source declares them.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["CHAINERS", "unsaid"]

CHAINERS = json.loads(Path(__file__).with_name("chainer-signatures.json").read_text("utf-8"))

ARRAYS = {
    "x", "xs", "y", "ys", "t", "a", "b", "h", "p", "n", "q", "c_prev", "hx", "cx", "ws", "bs", "e1",
    "e2", "x0", "x1", "x2", "c_prev1", "c_prev2", "W", "gamma", "beta", "mean", "ln_var", "log_pi",
    "condition", "cost", "z", "pred", "true", "anchor", "positive", "negative", "embeddings",
    "labels", "samples", "grid", "theta", "operands", "args", "divisor", "rhs", "X", "offset",
    "indexes", "slices", "inputs", "datasets", "shape", "axis1", "axis2", "source", "destination",
    "pad_width", "rois", "repeats", "indices_or_sections", "array",
}  # fmt: skip
"""Operands, which docs/from-chainer.md says to be given by position, and NumPy's names."""


def _parameters(text: str) -> Iterator[tuple[str, str | None]]:
    """The names and defaults of a recorded signature."""
    for part in re.findall(r"[*\w]+(?:=(?:\([^)]*\)|'[^']*'|[^,])*)?", text):
        name, equals, default = part.partition("=")
        yield name.lstrip("*"), default if equals else None


def _value(text: str) -> Any:
    """A default, or the text of one that is no literal."""
    try:
        return eval(text, {"__builtins__": {}})  # such as 1.0 / 8
    except Exception:
        return text


def _renamed(note: str) -> dict[str, str]:
    """What a note calls Chainer's arguments here."""
    pairs = {}
    for ours, theirs in re.findall(r"((?:\w+=(?:, )?)+) (?:is|are) Chainer's ((?:\w+=(?:, )?)+)", note):
        pairs |= dict(zip(re.findall(r"\w+", theirs), re.findall(r"\w+", ours), strict=True))
    for ours, theirs in re.findall(r"(\w+)=\S+ is Chainer's (\w+)=[^\s,;]+", note):
        pairs[theirs] = ours
    return pairs


def unsaid(chainers: str, target: Any, note: str) -> list[str]:
    """Each of Chainer's parameters that is another one here, or none, and not in the note."""
    target = target.init if inspect.isclass(target) and hasattr(target, "init") else target
    ours = {p.name: p for p in inspect.signature(target).parameters.values()}
    if any(p.kind is p.VAR_POSITIONAL for p in ours.values()):
        return []
    by_position = [p.name for p in ours.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    shift = by_position[:1] == ["key"]
    renamed, missing = _renamed(note), []
    said = lambda name: re.search(rf"\b{name}\b", note) is not None
    for i, (name, default) in enumerate(_parameters(chainers)):
        p = ours.get(renamed.get(name, name))
        if p is None:
            operand = name in ARRAYS and i + shift < len(by_position)
            if not operand and not said(name):
                missing.append(f"there is no {name}")
            continue
        if p.kind is p.POSITIONAL_ONLY and name not in ARRAYS and not re.search(
            rf"by position only: [\w, ]*\b{p.name}\b", note
        ):
            missing.append(f"{name} is given by position")
        if p.kind is p.KEYWORD_ONLY and not re.search(
            rf"by name only: [\w,= ]*\b{p.name}\b", note
        ):
            missing.append(f"{name} is given by name")
        if p.name in by_position and by_position.index(p.name) != i + shift and "in the order" not in note:
            missing.append(f"{name} has another position")
        if p.default is not p.empty or default is not None:
            same = default is not None and p.default == _value(default)
            if not same and not re.search(rf"\b({name}|{p.name})=[^\s;]+ (by default|is Chainer's)", note) and default is not None:
                missing.append(f"{name}={p.default} by default, Chainer's {default}")
    return missing
