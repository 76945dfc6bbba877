"""Images with what is in them, on matplotlib's axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.vision.boxes import masks_to_boxes
from fdbr.vision.drawing.colors import label_colors

__all__ = ["draw_boxes", "draw_image", "draw_instances", "draw_label_map", "draw_points"]


@public("fdbr.vision.drawing")
def draw_image(image: Any, *, ax: Any = None) -> Any:
    """Draw an image.

    Parameters
    ----------
    image
        Shape ``(3, H, W)`` or ``(1, H, W)``, colours from 0 to 255; `None` draws nothing.
    ax
        matplotlib's axes; by default those of a new figure of its ``pyplot``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.  The pixel in row i and column j covers ``[i, i + 1) x [j, j + 1)``.

    Raises
    ------
    ImportError
        If matplotlib is not installed (``pip install 'fdbr[vision]'``).
    ValueError
        If the image has another shape.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fdbr.vision import drawing
    >>> ax = drawing.draw_image(np.zeros((3, 4, 6)), ax=Figure().subplots())
    >>> tuple(map(float, ax.get_xlim()))
    (0.0, 6.0)
    """
    return _on_axes("draw_image", image, ax)


def _on_axes(function: str, image: Any, ax: Any) -> Any:
    """Draw an image, if there is one, and return the axes."""
    if ax is None:
        figure = optional(f"vision.drawing.{function}", "matplotlib.pyplot", "vision").figure()
        ax = figure.add_subplot()
    if image is None:
        return ax
    pixels = to_numpy(image)
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(
            f"fdbr.vision.drawing.{function}: image must have the shape (3, H, W) or (1, H, W), "
            f"got {describe(image)}"
        )
    colours = np.clip(np.rint(np.nan_to_num(pixels)), 0, 255).astype(np.uint8)
    _show(ax, np.broadcast_to(colours, (3, *pixels.shape[1:])).transpose(1, 2, 0))
    return ax


def _show(ax: Any, pixels: Any) -> None:
    """Show pixels so that coordinates are those of boxes and points."""
    height, width = pixels.shape[:2]
    ax.imshow(pixels, extent=(0, width, height, 0), interpolation="nearest")


def _objects(
    function: str, given: dict[str, Any], colors: Any, names: Any, sort_by_score: bool
) -> tuple[dict[str, Any], list[Any], list[str]]:
    """The fields of objects in the order in which they are drawn, their colours and captions."""
    fields = {k: to_numpy(v) for k, v in given.items() if v is not None}
    counts = {name: len(value) for name, value in fields.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(
            f"fdbr.vision.drawing.{function}: there must be an entry for each object, got {shown}"
        )
    count = next(iter(counts.values()))
    if count and not len(colors):
        raise ValueError(f"fdbr.vision.drawing.{function}: there must be at least one colour")
    shades = [np.asarray(colors[i % len(colors)]) / 255 for i in range(count)]
    labels, scores = fields.get("labels"), fields.get("scores")
    captions = []
    for i in range(count):
        parts = []
        if labels is not None and names is not None:
            if not 0 <= labels[i] < len(names):
                raise ValueError(
                    f"fdbr.vision.drawing.{function}: object {i} has the label {labels[i]}, and "
                    f"there are {len(names)} names"
                )
            parts.append(str(names[labels[i]]))
        if scores is not None:
            parts.append(f"{scores[i]:.2f}")
        captions.append(": ".join(parts))
    order = np.arange(count)
    if sort_by_score and scores is not None:
        order = np.argsort(scores, kind="stable")  # the highest is drawn last, in front
    fields = {name: value[order] for name, value in fields.items()}
    return fields, [shades[i] for i in order], [captions[i] for i in order]


@public("fdbr.vision.drawing")
def draw_boxes(
    image: Any,
    boxes: Any,
    labels: Any = None,
    scores: Any = None,
    *,
    names: Sequence[str] | None = None,
    colors: Any = ((255, 0, 0),),
    alpha: float = 1.0,
    linewidth: float = 3.0,
    sort_by_score: bool = True,
    ax: Any = None,
) -> Any:
    """Draw boxes in an image, with the names of their classes and their scores.

    Parameters
    ----------
    image
        Shape ``(3, H, W)``, colours from 0 to 255; `None` draws boxes alone.
    boxes
        Shape ``(R, 4)``, ``(y_min, x_min, y_max, x_max)``.
    labels, scores
        Shape ``(R,)``, or `None`.
    names
        The names of the classes; without them, labels are not written.
    colors
        For each box red, green and blue, from 0 to 255; if there are fewer, they are used again.
    alpha
        How opaque lines are, from 0 to 1.
    linewidth
        The width of lines.
    sort_by_score
        Whether boxes with higher scores are drawn in front of others; otherwise the last are.
    ax
        As for `draw_image`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If shapes do not fit, or a label has no name.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fdbr.vision import drawing
    >>> box, label = np.array([[1.0, 2, 3, 5]]), np.array([0])
    >>> ax = Figure().subplots()
    >>> _ = drawing.draw_boxes(np.zeros((3, 4, 6)), box, label, names=["cat"], ax=ax)
    >>> tuple(map(float, ax.patches[0].get_xy())), ax.texts[0].get_text()
    ((2.0, 1.0), 'cat')
    """
    boxes = to_numpy(boxes)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(
            f"fdbr.vision.drawing.draw_boxes: boxes must have the shape (R, 4), got "
            f"{describe(boxes)}"
        )
    given = {"boxes": boxes, "labels": labels, "scores": scores}
    fields, shades, captions = _objects("draw_boxes", given, colors, names, sort_by_score)
    ax = _on_axes("draw_boxes", image, ax)
    patches = optional("vision.drawing.draw_boxes", "matplotlib.patches", "vision")
    for box, shade, caption in zip(fields["boxes"], shades, captions, strict=True):
        top, left, bottom, right = box
        ax.add_patch(
            patches.Rectangle(
                (left, top),
                right - left,
                bottom - top,
                fill=False,
                edgecolor=shade,
                linewidth=linewidth,
                alpha=alpha,
            )
        )
        if caption:
            style = {"facecolor": "white", "alpha": 0.7, "pad": 2, "edgecolor": "none"}
            ax.text(left, top, caption, style="italic", fontsize=8, bbox=style, clip_on=True)
    return ax


@public("fdbr.vision.drawing")
def draw_instances(
    image: Any,
    masks: Any,
    labels: Any = None,
    scores: Any = None,
    *,
    names: Sequence[str] | None = None,
    colors: Any = None,
    alpha: float = 0.7,
    sort_by_score: bool = True,
    ax: Any = None,
) -> Any:
    """Draw the masks of objects in an image, with the names of their classes and their scores.

    Parameters
    ----------
    image, labels, scores, names, sort_by_score, ax
        As for `draw_boxes`.
    masks
        Shape ``(R, H, W)``, bool.
    colors
        As for `draw_boxes`; by default those of `label_colors` from 1.
    alpha
        How opaque masks are, from 0 to 1.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If shapes do not fit, or a label has no name.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fdbr.vision import drawing
    >>> ax = Figure().subplots()
    >>> _ = drawing.draw_instances(np.zeros((3, 4, 6)), np.ones((1, 4, 6), bool), ax=ax)
    >>> ax.images[1].get_array()[0, 0].tolist()
    [128, 0, 0, 178]
    """
    masks = to_numpy(masks)
    if masks.ndim != 3 or (image is not None and masks.shape[1:] != image.shape[1:]):
        raise ValueError(
            "fdbr.vision.drawing.draw_instances: masks must have the shape (R, H, W) of an image "
            f"{describe(image)}, got {describe(masks)}"
        )
    given = {"masks": masks, "labels": labels, "scores": scores}
    if colors is None:
        colors = label_colors(np.arange(1, len(masks) + 1))
    fields, shades, captions = _objects("draw_instances", given, colors, names, sort_by_score)
    ax = _on_axes("draw_instances", image, ax)
    masks = fields["masks"].astype(bool)
    canvas = np.zeros((*masks.shape[1:], 4), np.uint8)
    for mask, shade in zip(masks, shades, strict=True):
        canvas[mask] = np.append(shade, alpha) * 255
    if canvas.size:
        _show(ax, canvas)
    for box, shade, caption in zip(masks_to_boxes(masks), shades, captions, strict=True):
        if caption:
            style = {"facecolor": shade, "alpha": alpha, "pad": 2, "edgecolor": "none"}
            ax.text(
                (box[1] + box[3]) / 2,
                box[0],
                caption,
                style="italic",
                fontsize=8,
                color="white",
                bbox=style,
            )
    return ax


@public("fdbr.vision.drawing")
def draw_label_map(
    image: Any,
    label_map: Any,
    *,
    names: Sequence[str] | None = None,
    colors: Any = None,
    unknown_color: Any = (0, 0, 0),
    alpha: float = 1.0,
    legend: str | None = "present",
    ax: Any = None,
) -> Any:
    """Draw the class of each pixel of an image, with a legend.

    Parameters
    ----------
    image
        Shape ``(3, H, W)``, colours from 0 to 255; `None` draws the classes alone.
    label_map
        Shape ``(H, W)``, integers, -1 where the class is unknown.
    names
        The names of the classes; by default their numbers.
    colors
        Red, green and blue, from 0 to 255, for each class; by default `label_colors`.
    unknown_color
        That of unknown pixels.
    alpha
        How opaque the classes are, from 0 to 1.
    legend
        ``"present"`` names the classes in the label map, ``"all"`` names all, `None` none.
    ax
        As for `draw_image`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; its legend, if there is one, is at the right.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If shapes do not fit, or a label has no name or colour.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fdbr.vision import drawing
    >>> ax = Figure().subplots()
    >>> _ = drawing.draw_label_map(None, np.array([[0, 2]]), names=["sky", "tree", "sea"], ax=ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['sky', 'sea']
    """
    labels = to_numpy(label_map)
    where = "fdbr.vision.drawing.draw_label_map"
    if (
        labels.ndim != 2
        or labels.dtype.kind not in "iu"
        or (image is not None and labels.shape != image.shape[1:])
    ):
        raise ValueError(
            f"{where}: label_map must be of integers, with the height and width of an image "
            f"{describe(image)}, got {describe(label_map)}"
        )
    if legend not in ("present", "all", None):
        raise ValueError(f"{where}: legend must be 'present', 'all' or None, got {legend!r}")
    largest = int(labels.max()) if labels.size else -1  # unsigned ones have no -1
    given = [len(values) for values in (names, colors) if values is not None]
    count = min(given, default=largest + 1)
    if largest >= count or len(set(given)) > 1:
        raise ValueError(
            f"{where}: there must be a name and a colour for each label up to {largest}, got "
            f"{' and '.join(map(str, given))} of them"
        )
    colours = label_colors(np.arange(count)) if colors is None else np.asarray(colors)
    # The last one is that of -1.
    table = np.concatenate([np.reshape(colours, (-1, 3)), [unknown_color]])
    pixels = np.empty((*labels.shape, 4), np.uint8)
    pixels[..., :3] = table[np.where(labels < 0, count, labels)]
    pixels[..., 3] = round(255 * alpha)
    ax = _on_axes("draw_label_map", image, ax)
    _show(ax, pixels)
    if legend is not None:
        shown = np.arange(count) if legend == "all" else np.unique(labels[labels >= 0])
        patches = optional("vision.drawing.draw_label_map", "matplotlib.patches", "vision")
        handles = [
            patches.Patch(color=table[i] / 255, label=str(i) if names is None else names[i])
            for i in shown.tolist()
        ]
        if handles:
            ax.legend(handles=handles, bbox_to_anchor=(1, 1), loc="upper left")
    return ax


@public("fdbr.vision.drawing")
def draw_points(
    image: Any,
    points: Any,
    visible: Any = None,
    *,
    skeleton: Sequence[tuple[int, int]] = (),
    colors: Any = None,
    size: float = 30.0,
    linewidth: float = 2.0,
    ax: Any = None,
) -> Any:
    """Draw the points of objects in an image, and lines between them.

    Parameters
    ----------
    image
        Shape ``(3, H, W)``, colours from 0 to 255; `None` draws points alone.
    points
        Shape ``(R, K, 2)``, ``(y, x)``.
    visible
        Shape ``(R, K)``, bool: the points that are drawn; by default all.
    skeleton
        Pairs of numbers of points; those that are both visible are joined by a line.
    colors
        Red, green and blue, from 0 to 255, for each of the K points; if there are fewer, they are
        used again.  By default those of a rainbow.
    size
        The area of points, as for matplotlib's ``scatter``.
    linewidth
        The width of lines.
    ax
        As for `draw_image`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If shapes do not fit, or there is no such point.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fdbr.vision import drawing
    >>> points = np.array([[[1.0, 2], [3, 5]]])
    >>> ax = Figure().subplots()
    >>> _ = drawing.draw_points(np.zeros((3, 4, 6)), points, skeleton=[(0, 1)], ax=ax)
    >>> ax.collections[0].get_offsets().tolist(), ax.lines[0].get_xydata().tolist()
    ([[2.0, 1.0], [5.0, 3.0]], [[2.0, 1.0], [5.0, 3.0]])
    """
    where = "fdbr.vision.drawing.draw_points"
    at = to_numpy(points)
    if at.ndim != 3 or at.shape[2] != 2:
        raise ValueError(f"{where}: points must have the shape (R, K, 2), got {describe(points)}")
    shown = np.ones(at.shape[:2], bool) if visible is None else to_numpy(visible).astype(bool)
    if shown.shape != at.shape[:2]:
        raise ValueError(
            f"{where}: visible must have an entry for each point of {describe(points)}, got "
            f"{describe(visible)}"
        )
    count = at.shape[1]
    for a, b in skeleton:
        if not 0 <= min(a, b) <= max(a, b) < count:
            raise ValueError(
                f"{where}: skeleton must be pairs of numbers below {count}, got ({a}, {b})"
            )
    if colors is None:
        maps = optional("vision.drawing.draw_points", "matplotlib", "vision").colormaps
        shades = maps["gist_rainbow"](np.arange(count) / max(count, 1))[:, :3]
    else:
        shades = np.asarray(colors, float).reshape(-1, 3)[np.arange(count) % len(colors)] / 255
    ax = _on_axes("draw_points", image, ax)
    for one, seen in zip(at, shown, strict=True):
        for a, b in skeleton:
            if seen[a] and seen[b]:
                ends = one[[a, b]]
                ax.plot(ends[:, 1], ends[:, 0], color=shades[b], linewidth=linewidth, zorder=1.5)
        if seen.any():
            ax.scatter(one[seen, 1], one[seen, 0], c=shades[seen], s=size, zorder=2)
    if image is not None:
        ax.set(xlim=(0, image.shape[2]), ylim=(image.shape[1], 0))
    return ax
