"""The predictions and truths of each image, checked."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe
from fdbr.vision.transforms.fields import OBJECT_AXES

__all__ = ["Measure", "checked", "fields_of_image", "measured"]

_END = object()

_SHAPES: dict[str, tuple[str | int, ...]] = {
    **{name: ("R", *axes) for name, axes in OBJECT_AXES.items()},
    "label_map": ("H", "W"),
}
_DTYPES = {"labels": ("ui", "integers"), "label_map": ("ui", "integers")} | dict.fromkeys(
    ("masks", "visible", "difficult", "crowded"), ("bui", "booleans, or integers")
)
_REAL = ("fui", "real numbers")


class Measure(Protocol):
    """A measure of a data set: what it keeps of each image, and the figures of all."""

    @property
    def where(self) -> str:
        """The name of the public function, with which messages begin."""

    @property
    def predicted(self) -> tuple[str, ...]:
        """The fields of predictions in the order of a plain tuple."""

    @property
    def truths(self) -> tuple[str, ...]:
        """The fields of truths in the order of a plain tuple."""

    def record(self, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> Any:
        """Return what the figures need of image ``i``; it is small, and can be pickled."""

    def figures(self, records: Sequence[Any]) -> dict[str, Any]:
        """Return the figures of all images from their records, in the order of images."""


def measured(measure: Measure, predicted: Any, truths: Any, **extras: Any) -> list[Any]:
    """Return the records of all images of a call.

    Without ``truths``, ``predicted`` are pairs of a prediction and an example, as `predict_each`
    yields.
    """
    if truths is None:
        given = [name for name, values in extras.items() if values is not None]
        if given or isinstance(predicted, Mapping) or hasattr(predicted, "_fields"):
            raise TypeError(
                f"{measure.where}: without truths, predicted must be pairs of a prediction and an "
                "example, as fdbr.vision.evaluation.predict_each yields, and nothing else is "
                f"given; got {describe(predicted)}" + "".join(f" and {name}=" for name in given)
            )
        return [
            measure.record(i, fields_of_image(measure, found), example)
            for i, (found, example) in enumerate(predicted)
        ]
    found = _columns(measure, "predicted", measure.predicted, predicted)
    true = _columns(measure, "truths", measure.truths, truths)
    true |= {name: values for name, values in extras.items() if values is not None}
    padded = [
        {"padded": True} if getattr(side.get("labels"), "ndim", 0) == 2 else {}
        for side in (found, true)
    ]
    names = [f"predicted.{name}" for name in found] + [
        name if name in extras else f"truths.{name}" for name in true
    ]
    records = []
    for i, values in enumerate(_together(measure.where, names, [*found.values(), *true.values()])):
        sides = (
            dict(zip(found, values, strict=False)) | padded[0],
            dict(zip(true, values[len(found) :], strict=True)) | padded[1],
        )
        records.append(measure.record(i, *sides))
    return records


def fields_of_image(measure: Measure, found: Any) -> dict[str, Any]:
    """Return the fields of the prediction of one image by their names."""
    if hasattr(found, "_asdict"):
        fields: dict[str, Any] = found._asdict()
        return fields
    return dict(zip(measure.predicted, (found,), strict=False))


def _columns(measure: Measure, side: str, names: tuple[str, ...], values: Any) -> dict[str, Any]:
    """Return the fields of predictions or truths by their names, without those that are `None`."""
    if hasattr(values, "_asdict"):
        columns = values._asdict()
    elif names == ("label_map",):
        columns = {"label_map": values}
    elif isinstance(values, tuple | list) and len(values) <= len(names):
        columns = dict(zip(names, values, strict=False))
    else:
        raise TypeError(
            f"{measure.where}: {side} must be a named tuple such as fdbr.vision.Detections, or a "
            f"tuple with the fields {', '.join(names)}, got {describe(values)}"
            + (f" of {len(values)}" if isinstance(values, tuple | list) else "")
        )
    columns = {
        name: to_numpy(column) if hasattr(column, "ndim") else column  # padded: moved at once
        for name, column in columns.items()
        if column is not None
    }
    for name, column in columns.items():
        if not isinstance(column, Iterable):
            raise TypeError(
                f"{measure.where}: {side}.{name} must have an array for each image, got "
                f"{describe(column)}"
            )
    return columns


def _together(where: str, names: list[str], columns: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield what all columns have of each image; they must have the same number of images."""
    for i, values in enumerate(itertools.zip_longest(*columns, fillvalue=_END)):
        short = [name for name, value in zip(names, values, strict=True) if value is _END]
        if short:
            raise ValueError(
                f"{where}: all fields must have the same number of images, but there is no image "
                f"{i} in {', '.join(short)}, which others have"
            )
        yield values


def checked(
    measure: Measure,
    i: int,
    side: str,
    values: Mapping[str, Any],
    needed: tuple[str, ...],
    optional: tuple[str, ...] = (),
    classes: int | None = None,
    box_format: str = "yxyx",
) -> dict[str, Any]:
    """Return some fields of the objects of an image as NumPy arrays, without padding.

    Raises
    ------
    ValueError, TypeError
        If a field is missing, or has another shape or dtype, or values that cannot be; the message
        has the index of the image.
    """
    where, who = measure.where, f"image {i}: {side}"
    sizes: dict[str, int] = {}
    arrays = {}
    for name in needed + tuple(name for name in optional if values.get(name) is not None):
        if values.get(name) is None:
            raise ValueError(f"{where}: {who}.{name} is needed and missing")
        array = arrays[name] = to_numpy(values[name])
        form = _SHAPES[name]
        if array.ndim != len(form) or any(
            size != (sizes.setdefault(axis, size) if isinstance(axis, str) else axis)
            for axis, size in zip(form, array.shape, strict=True)
        ):
            known = "".join(f", with {axis}={size}" for axis, size in sizes.items() if axis in form)
            raise ValueError(
                f"{where}: {who}.{name} must have the shape ({', '.join(map(str, form))})"
                f"{known}, got {describe(array)}"
            )
        kinds, meaning = _DTYPES.get(name, _REAL)
        if array.dtype.kind not in kinds and array.size:
            raise TypeError(
                f"{where}: {who}.{name} must have a dtype of {meaning}, got {describe(array)}"
            )
    if values.get("padded"):
        kept = arrays["labels"] >= 0
        arrays = {name: array[kept] for name, array in arrays.items()}
    for name, array in arrays.items():
        if (wrong := _wrong(name, array, classes, box_format)) is not None:
            raise ValueError(f"{where}: {who}.{name} {wrong}")
    if "labels" in arrays:  # of unsigned integers, too
        arrays["labels"] = arrays["labels"].astype(np.int64)
    if box_format == "xyxy" and "boxes" in arrays:
        arrays["boxes"] = arrays["boxes"][:, [1, 0, 3, 2]]
    return arrays


def _wrong(name: str, array: Any, classes: int | None, box_format: str) -> str | None:
    """Return what is wrong with the values of a field, or `None`."""
    if name == "labels" and array.size:
        least, most = array.min(), array.max()
        if least < 0 or (classes is not None and most >= classes):
            limit = "at least 0" if classes is None else f"from 0 to {classes - 1}"
            return f"must be {limit}, got {least if least < 0 else most}"
    elif name == "boxes":
        if not np.isfinite(array).all():
            return "must be finite, got " + str(array[~np.isfinite(array).all(axis=1)][0])
        inverted = (array[:, 2:] < array[:, :2]).any(axis=1)
        if inverted.any():
            order = "y_min, x_min, y_max, x_max" if box_format == "yxyx" else "x_min, …, y_max"
            return f"must be ({order}), each min at most max, got {array[inverted][0]}"
    elif name in ("scores", "areas") and np.isnan(array).any():
        return f"must not be NaN, got NaN at index {int(np.isnan(array).argmax())}"
    elif name == "areas" and array.size and array.min() < 0:
        return f"must be at least 0, got {array.min()}"
    return None
