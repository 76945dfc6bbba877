"""Pictures of predictions during training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fdbr.core.devices import optional
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch
from fdbr.vision.drawing.axes import (
    draw_boxes,
    draw_image,
    draw_instances,
    draw_label_map,
    draw_points,
)

__all__ = ["report"]


@public("fdbr.vision.drawing")
def report(
    folder: str | Path,
    predict: Callable[[Any, Sequence[Any]], Any],
    examples: Sequence[Mapping[str, Any]],
    every: Condition = each_epoch,
    *,
    names: Sequence[str] | None = None,
    skeleton: Sequence[tuple[int, int]] = (),
    file: str = "prediction_{index}.png",
    name: str = "predictions",
) -> Stage:
    """Make a stage that draws the truth and the prediction for some examples, side by side.

    A picture is replaced by a whole one.  The page of ``python -m fdbr.train.watch`` shows the
    pictures that lie in the folder of a run's log.

    Parameters
    ----------
    folder
        The folder of the pictures; it is made if it is missing.
    predict
        ``predict(state, images)``: a result of `predict` of a model: `Detections`, `Instances`,
        `Keypoints`, or a tuple with a label map for each image.
    examples
        A few examples, with ``image`` and those fields of the truth that are to be drawn.
    every
        Which reports; by default the last of each epoch.
    names
        The names of the classes.
    skeleton
        The lines between points, as for `draw_points`.
    file
        The name of a picture, with a suffix that matplotlib knows; ``{index}`` becomes the number
        of the example, and ``{iteration}`` that of the report, which keeps earlier pictures.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        A function from an iterator of reports to an iterator of the same reports.  It raises
        OSError if a picture cannot be written, TypeError and ValueError for predictions that are
        no result for the images.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fdbr import train, vision
    >>> example = {"image": np.zeros((3, 8, 8)), "boxes": np.array([[1.0, 1, 5, 5]])}
    >>> def predict(state, images):
    ...     return vision.Detections(*(len(images) * [np.zeros(s)] for s in ((0, 4), 0, 0)))
    >>> reports = [train.Report(1, 1, {}, None, train.Position(1, 0), 0.1)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stage = vision.drawing.report(folder, predict, [example])
    ...     _ = list(stage(iter(reports)))
    ...     [path.name for path in pathlib.Path(folder).iterdir()]
    ['prediction_0.png']
    """
    trigger = as_trigger("report", "every", every)
    name = named("report", name)
    where = "fdbr.vision.drawing.report"
    figures = optional("vision.drawing.report", "matplotlib.figure", "vision")
    for i in range(len(examples)):
        if not isinstance(examples[i], Mapping) or "image" not in examples[i]:
            raise TypeError(
                f"{where}: examples must be dicts with an image, example {i} is "
                f"{describe(examples[i])}"
            )
    if not len(examples):
        raise ValueError(f"{where}: there must be at least one example")
    known = figures.Figure().canvas.get_supported_filetypes()
    suffix = Path(file).suffix[1:].lower()
    if suffix not in known or ("{index}" not in file and len(examples) > 1):
        raise ValueError(
            f"{where}: file must have {{index}} in it, and a suffix of {', '.join(sorted(known))}, "
            f"got {file!r}"
        )

    def draw(report: Report) -> None:
        images = [example["image"] for example in examples]
        found = _by_image(predict(report.state, images), len(images))
        Path(folder).mkdir(parents=True, exist_ok=True)
        for i, example in enumerate(examples):
            height, width = example["image"].shape[1:]
            side = min(max(5 * height / width, 1.5), 15)
            figure = figures.Figure(figsize=(10, side), layout="constrained")
            drawn = found[i]
            truth = {field: example.get(field) for field in (*drawn, "visible")}
            for ax, title, fields in zip(
                figure.subplots(1, 2), ("truth", "prediction"), (truth, drawn), strict=True
            ):
                _draw(ax, example["image"], fields, names, skeleton)
                ax.set(title=title, xticks=(), yticks=())
            figure.suptitle(f"iteration {report.iteration}")
            target = Path(folder, file.format(index=i, iteration=report.iteration))
            try:
                with replacing(target) as written:
                    figure.savefig(written, format=suffix)
            except OSError as error:
                text = f"{where}: {target} cannot be written: {error.strerror or error}"
                raise type(error)(error.errno, text) from error

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    draw(report)
                yield report

    return stage


def _by_image(found: Any, count: int) -> list[dict[str, Any]]:
    """The fields of a result for each image."""
    where = "fdbr.vision.drawing.report"
    fields = found._asdict() if hasattr(found, "_asdict") else {"label_map": found}
    for field, values in fields.items():
        if not isinstance(values, Sequence) or len(values) != count:
            raise ValueError(
                f"{where}: predict must return a ragged result with an array for each of {count} "
                f"images, got {describe(values)} as {field}; vision.unpad makes padded ones ragged"
            )
    return [{field: values[i] for field, values in fields.items()} for i in range(count)]


def _draw(ax: Any, image: Any, fields: Mapping[str, Any], names: Any, skeleton: Any) -> None:
    """Draw the fields that there are."""
    draw_image(image, ax=ax)
    labels, scores = fields.get("labels"), fields.get("scores")
    if fields.get("label_map") is not None:
        draw_label_map(None, fields["label_map"], names=names, alpha=0.7, ax=ax)
    if fields.get("masks") is not None:
        draw_instances(None, fields["masks"], alpha=0.5, ax=ax)
    if fields.get("boxes") is not None:
        draw_boxes(None, fields["boxes"], labels, scores, names=names, linewidth=1.5, ax=ax)
    if fields.get("points") is not None:
        draw_points(None, fields["points"], fields.get("visible"), skeleton=skeleton, ax=ax)
