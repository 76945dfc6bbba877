"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, Segmenter

__all__ = ["Detector", "Prepared", "Segmenter"]
__dir__ = __all__.copy  # `dir` shows the public names alone
