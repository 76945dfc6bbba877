"""Predictions for a data set, one image after another."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public

__all__ = ["predict_each"]

_WHERE = "fdbr.vision.evaluation.predict_each"


@public("fdbr.vision.evaluation")
def predict_each(
    predict: Callable[[list[Any]], Any], examples: Iterable[Any], *, batch: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Yield for each example the prediction of its image, and the example.

    One batch of examples is held at a time, so that the functions of this module measure a data
    set that does not fit into memory: ``detection_voc(predict_each(model.predict, dataset))``.  A
    model on a GPU is given images there: ``lambda images: model.predict(fdbr.device_put(images))``.

    Parameters
    ----------
    predict
        ``predict(images)``: the results for a list of images, as ``model.predict``: a named tuple
        whose fields have an item for each image, or a sequence with an item for each image.
    examples
        Dicts with the key ``image``, as `fdbr.vision.datasets` have them.
    batch
        How many images ``predict`` is given at once.

    Yields
    ------
    tuple
        The result for one image, of the type that ``predict`` returns if that is a named tuple,
        and its example.

    Raises
    ------
    ValueError, TypeError
        If an example has no image, or ``predict`` returns another number of results.

    >>> import numpy as np
    >>> from fdbr.vision.evaluation import predict_each
    >>> examples = [{"image": np.full((3, 2, 2), 9.0), "label_map": np.zeros((2, 2), int)}]
    >>> for found, example in predict_each(lambda images: [x[0] > 5 for x in images], examples):
    ...     print(found[0], example["label_map"][0])
    [ True  True] [0 0]
    """
    batch = integer(_WHERE, "batch", batch, least=1)
    return _predictions(predict, iter(examples), batch)


def _predictions(
    predict: Callable[[list[Any]], Any], stream: Iterator[Any], batch: int
) -> Iterator[tuple[Any, Any]]:
    start = 0
    while chunk := list(itertools.islice(stream, batch)):
        for i, example in enumerate(chunk, start):
            if not isinstance(example, Mapping) or "image" not in example:
                raise TypeError(
                    f"{_WHERE}: example {i} must be a dict with the key 'image', got "
                    + (f"the keys {', '.join(map(repr, example))}" if isinstance(example, Mapping)
                       else describe(example))
                )  # fmt: skip
        found = predict([example["image"] for example in chunk])
        named = hasattr(found, "_fields")
        for name, field in found._asdict().items() if named else [("its result", found)]:
            if field is not None and len(field) != len(chunk):
                raise ValueError(
                    f"{_WHERE}: predict must return an item for each of {len(chunk)} images, from "
                    f"{start} on, got {len(field)} in {name}"
                )
        for k, example in enumerate(chunk):
            if named:
                yield type(found)(*(None if f is None else f[k] for f in found)), example
            else:
                yield found[k], example
        start += len(chunk)
