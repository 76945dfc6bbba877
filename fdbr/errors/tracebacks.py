"""The frames that an error has passed through."""

import sys
from collections.abc import Iterator
from types import FrameType, TracebackType

__all__ = ["hide_frames", "is_users"]

_LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "attr", "attrs", "cupy", "h5py", "hypothesis", "llvmlite", "numpy", "optree", "safetensors",
    "scipy", "tqdm",
}  # fmt: skip


def is_users(error: BaseException) -> bool:
    """Return whether an error has passed through code of the user."""
    return any(_is_users(step.tb_frame) for step in _steps(error))


def hide_frames(error: BaseException) -> None:
    """Remove the frames of fdbr that lead to code of the user from a traceback.

    The traceback of an error that fdbr raises itself is unchanged.
    """
    kept = None
    for step in reversed(list(_steps(error))):
        if kept is None and not _is_users(step.tb_frame):
            continue
        if kept is None:
            kept = step  # with all steps that follow
        elif _package(step.tb_frame) != "fdbr":
            kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    if kept is not None:
        error.__traceback__ = kept


def _steps(error: BaseException) -> Iterator[TracebackType]:
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


def _is_users(frame: FrameType) -> bool:
    package = _package(frame)
    return package != "fdbr" and package not in _LIBRARIES


def _package(frame: FrameType) -> str:
    # Generated code may have no module.
    return str(frame.f_globals.get("__name__") or "fdbr").partition(".")[0]
