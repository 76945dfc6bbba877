"""Texts of values that are short enough for a message."""

from typing import Any

__all__ = ["brief", "shortened"]

_LONGEST = 200  # characters of a value that a message shows


def brief(value: Any) -> str:
    """The text of a value, or its beginning and end where it is as long as a model's."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """A text, or its beginning and end if it is long."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"
