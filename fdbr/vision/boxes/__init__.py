"""Boxes, masks and anchors: overlaps, suppression, encodings."""

__all__: list[str] = []
__dir__ = __all__.copy  # `dir` shows the public names alone
