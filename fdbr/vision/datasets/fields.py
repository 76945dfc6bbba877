"""Some fields of examples, and data sets whose fields are functions of an item."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.reading import count_of, is_sequence
from fdbr.train.data.sequences import (
    Concatenated,
    Subset,
    Zipped,
    map_examples,
)
from fdbr.vision.datasets.base import Examples

__all__ = ["by_field", "select"]


@public("fdbr.vision.datasets")
def by_field(
    items: Sequence[Any],
    fields: Mapping[str | tuple[str, ...], Callable[[Any], Any]],
    classes: Sequence[str] = (),
) -> Any:
    """Return a data set whose fields are functions of an item, such as the path of a picture.

    With `select`, functions of fields that are not wanted are not called: the labels of all
    examples are read without opening a picture.

    Parameters
    ----------
    items
        What an example is made of, one item for each: paths, or rows of a table.
    fields
        For the name of a field the function of an item that returns it; for a tuple of names a
        function that returns a tuple of as many values.
    classes
        The names of the classes; if given, ``labels`` must be from 0 to their number less 1.

    Returns
    -------
    sequence
        Examples that are dicts of the fields.

    Raises
    ------
    TypeError
        If ``items`` is no sequence, or a value of ``fields`` no function.
    ValueError
        If there is no item; when an example is read, if its boxes lie outside of its image, or its
        masks differ from it in size.

    >>> from fdbr import vision
    >>> fields = {"label": lambda i: i % 2, "x": lambda i: i * i}
    >>> squares = vision.datasets.by_field(range(5), fields)
    >>> squares[3]
    {'label': 1, 'x': 9}
    """
    function = "fdbr.vision.datasets.by_field"
    count = count_of(function, items)
    readers = []
    for name, f in fields.items():
        if not callable(f):
            raise TypeError(f"{function}: the field {name} must be a function, not {describe(f)}")
        names = (name,) if isinstance(name, str) else tuple(name)
        readers.append((names, _Of(f, items, isinstance(name, str))))
    return Examples(function, tuple(readers), count, tuple(classes))


@attrs.frozen(eq=False)
class _Of:
    """A reader that calls a function of an item."""

    function: Callable[[Any], Any]
    items: Any = attrs.field(repr=False)
    single: bool

    def __call__(self, index: int) -> tuple[Any, ...]:
        value = self.function(self.items[index])
        return (value,) if self.single else tuple(value)


@public("fdbr.vision.datasets")
def select(dataset: Any, *fields: str) -> Any:
    """Return a data set with some of the fields of another one's examples.

    Of the data sets of this module, and what `fdbr.train.subset`, `split`, `concatenate` and
    `zip_examples` make of them, no file is opened that only other fields need.

    Parameters
    ----------
    dataset
        A data set of dicts, as for `fdbr.train.Batches`.
    fields
        The names of the fields.

    Returns
    -------
    sequence
        A data set of dicts of these fields, in their order.

    Raises
    ------
    KeyError
        If there is no such field; for some data sets only when an example is read.
    TypeError
        If there is no field, or ``dataset`` is no data set.

    >>> from fdbr import train, vision
    >>> fields = {"label": lambda i: i % 3, "x": lambda i: 1 / i}
    >>> numbers = vision.datasets.by_field(range(9), fields)
    >>> labels = vision.datasets.select(numbers, "label")       # never divides by 0
    >>> train.subset(numbers, [i for i, one in enumerate(labels) if one["label"] == 1])[1]
    {'label': 1, 'x': 0.25}
    """
    name = "fdbr.vision.datasets.select"
    count_of(name, dataset)
    if not fields or not all(isinstance(field, str) for field in fields):
        raise TypeError(f"{name}: give the names of fields, got {fields}")
    return _selected(dataset, fields)


def _selected(dataset: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(dataset, Examples):
        return dataset.select(fields)
    if isinstance(dataset, Subset):
        return Subset(_selected(dataset.dataset, fields), dataset.indices)
    if isinstance(dataset, Concatenated):
        return Concatenated(tuple(_selected(one, fields) for one in dataset.datasets), dataset.ends)
    columns = dataset
    if isinstance(dataset, Zipped) and dataset.names is not None:
        columns = dict(zip(dataset.names, dataset.datasets, strict=True))
    if isinstance(columns, Mapping) and not is_sequence(columns):
        chosen = {field: columns[field] for field in fields}
        return chosen if columns is dataset else Zipped(tuple(chosen.values()), fields)
    return map_examples(functools.partial(_picked, fields), dataset)


def _picked(fields: tuple[str, ...], example: Any) -> dict[str, Any]:
    return {field: example[field] for field in fields}
