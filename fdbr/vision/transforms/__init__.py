"""Transforms of images together with their boxes, masks and points."""

__all__: list[str] = []
__dir__ = __all__.copy  # `dir` shows the public names alone
