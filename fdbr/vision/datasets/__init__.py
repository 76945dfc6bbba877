"""Data sets of vision, read from folders."""

__all__: list[str] = []
__dir__ = __all__.copy  # `dir` shows the public names alone
