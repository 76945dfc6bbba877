"""Measures of detectors and segmenters."""

__all__: list[str] = []
__dir__ = __all__.copy  # `dir` shows the public names alone
