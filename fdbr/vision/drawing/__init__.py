"""Images with boxes, masks, points and legends, on matplotlib's axes.

matplotlib is imported when something is drawn: ``pip install 'fdbr[vision]'``.  Functions take
``ax``, so that several draw on the same axes, and the image `None` draws what is in it alone.
Arrays on a GPU are moved to host memory.
"""

from fdbr.vision.drawing.axes import (
    draw_boxes,
    draw_image,
    draw_instances,
    draw_label_map,
    draw_points,
)
from fdbr.vision.drawing.colors import label_colors
from fdbr.vision.drawing.stage import report
from fdbr.vision.drawing.tiles import tile_images

__all__ = [
    "draw_boxes",
    "draw_image",
    "draw_instances",
    "draw_label_map",
    "draw_points",
    "label_colors",
    "report",
    "tile_images",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
