"""Images with boxes, masks, points and legends, on matplotlib's axes."""

__all__: list[str] = []
__dir__ = __all__.copy  # `dir` shows the public names alone
