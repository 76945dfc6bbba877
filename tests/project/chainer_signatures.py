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


def _same(ours: Any, theirs: str) -> bool:
    """Whether a default is the one of which Chainer's source has the text."""
    if theirs == "(1, 'epoch')":
        return repr(ours) == "every(epochs=1)"
    if callable(ours):
        return theirs.rpartition(".")[2] == getattr(ours, "__name__", "")
    try:
        return bool(ours == eval(theirs, {"__builtins__": {}}))  # such as 1.0 / 8
    except NameError:
        return False


def _renamed(note: str) -> dict[str, str]:
    """What a note calls Chainer's arguments here."""
    pairs = {}
    for ours, theirs in re.findall(
        r"((?:\w+=(?:, )?)+) (?:is|are) Chainer's ((?:\w+=(?:, )?)+)", note
    ):
        pairs |= dict(zip(re.findall(r"\w+", theirs), re.findall(r"\w+", ours), strict=True))
    for ours, theirs in re.findall(r"(\w+)=\S+ is Chainer's (\w+)=[^\s,;]+", note):
        pairs[theirs] = ours
    return pairs


def unsaid(chainers: str, target: Any, note: str) -> list[str]:
    """Each of Chainer's parameters that is another one here, or none, and not in the note."""
    if not callable(target):
        return []
    target = target.init if inspect.isclass(target) and hasattr(target, "init") else target
    ours = {p.name: p for p in inspect.signature(target).parameters.values()}
    if any(p.kind is p.VAR_POSITIONAL for p in ours.values()):
        return []
    in_order = [p.name for p in ours.values() if p.kind is not p.KEYWORD_ONLY]
    has_key, renamed, missing = in_order[:1] == ["key"], _renamed(note), []
    listed = lambda form, name: re.search(rf"{form}: [\w,= ]*\b{name}\b", note) is not None
    for i, (name, default) in enumerate(_parameters(chainers), 1 if has_key else 0):
        p = ours.get(renamed.get(name, name))
        if p is None:
            if not (name in ARRAYS and i < len(in_order)) and not re.search(rf"\b{name}\b", note):
                missing.append(f"there is no {name}")
            continue
        if p.kind is p.POSITIONAL_ONLY:
            if name not in ARRAYS and not listed("by position only", p.name):
                missing.append(f"{name} is given by position")
        elif p.kind is p.KEYWORD_ONLY and not listed("by name only", p.name):
            missing.append(f"{name} is given by name")
        if p.name in in_order and in_order[i : i + 1] != [p.name] and "in the order" not in note:
            missing.append(f"{name} has another position")
        if default is None or p.name == "dtype" or _same(p.default, default):
            continue
        stated = "must be given|is Chainer's|is that|by default"
        if not re.search(rf"\b({name}|{p.name})=[^;]*? ?({stated})", note):
            missing.append(f"{name}={p.default} by default, Chainer's {default}")
    return missing
