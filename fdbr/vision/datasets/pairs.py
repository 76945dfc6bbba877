"""Random pairs of examples, and mixtures of pairs."""

import functools
from typing import Any

import attrs
import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.augment.pixels import within
from fdbr.train.data.reading import count_of, example_of, in_epoch
from fdbr.train.data.sequences import View, map_examples
from fdbr.vision.transforms.fields import host_array

__all__ = ["mix_up", "mix_up_pairs", "pair_indices", "siamese_pairs"]


@public("fdbr.vision.datasets")
def pair_indices(
    key: Any, first: Any, second: Any, count: int, positive: float | None = None
) -> tuple[Any, Any]:
    """Draw pairs of examples of two data sets by their labels.

    Parameters
    ----------
    key
        A key.
    first, second
        The labels of the examples of both data sets, integers of shape ``(N,)`` and ``(M,)``.
    count
        The number of pairs.
    positive
        The probability that both have one label.  The first's label is then drawn from those that
        allow it, all with the same probability; so is the second's, if it is another one.  `None`
        draws examples regardless of their labels.

    Returns
    -------
    tuple
        Two arrays of indices, int64, of shape ``(count,)``.

    Raises
    ------
    ValueError
        If labels have no examples or another shape, ``positive`` is no probability, or there are no
        pairs of one label, or of two, where some are to be drawn.

    >>> import numpy as np
    >>> from fdbr import random, vision
    >>> labels = np.array([0, 0, 1, 2])
    >>> a, b = vision.datasets.pair_indices(random.key(0), labels, labels, 1000, positive=0.3)
    >>> bool(0.25 < (labels[a] == labels[b]).mean() < 0.35)
    True
    """
    name = "fdbr.vision.datasets.pair_indices"
    count = integer(name, "count", count, least=0)
    first, second = _labels(name, "first", first), _labels(name, "second", second)
    keys = random.split(key, 5)
    if positive is None:
        return (
            random.randint(keys[0], (count,), 0, len(first)).astype(np.int64),
            random.randint(keys[1], (count,), 0, len(second)).astype(np.int64),
        )
    if not 0 <= positive <= 1:
        raise ValueError(f"{name}: positive must be a probability, got {positive}")
    ours, theirs = _Groups.of(first), _Groups.of(second)
    same = random.uniform(keys[0], (count,)) < positive
    shared = np.flatnonzero(np.isin(ours.labels, theirs.labels))
    # All labels have a partner of another one, but where the second data set has only theirs.
    apart = np.flatnonzero(len(theirs.labels) - np.isin(ours.labels, theirs.labels))
    for what, some, needed in (("one", shared, positive > 0), ("two", apart, positive < 1)):
        if needed and not len(some):
            raise ValueError(
                f"{name}: there are no pairs of {what} label{'s' * (what == 'two')}; give "
                f"positive={int(what == 'two')}, or None for any pairs"
            )
    draws = [random.uniform(one, (count,), dtype="float64") for one in keys[1:]]
    chosen = np.where(same, _pick(shared, draws[0]), _pick(apart, draws[0]))
    label = ours.labels[chosen]
    # The position of the label, or of one of the others: those from its own position on move up.
    own = np.searchsorted(theirs.labels, label)
    known = theirs.labels[np.minimum(own, len(theirs.labels) - 1)] == label
    other = (draws[1] * (len(theirs.labels) - known)).astype(np.int64)
    other += known & (other >= own)
    partner = np.where(same, own, other)
    return ours.members(chosen, draws[2]), theirs.members(partner, draws[3])


def _labels(name: str, argument: str, labels: Any) -> Any:
    labels = host_array(f"{name}: {argument}", labels)
    if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: {argument} must be the integer labels of all examples, of one axis, got "
            f"{describe(labels)}"
        )
    return labels


def _pick(some: Any, draws: Any) -> Any:
    """One of some values for each number in [0, 1)."""
    return some[(draws * len(some)).astype(np.int64)] if len(some) else np.zeros_like(draws, int)


@attrs.frozen(eq=False)
class _Groups:
    """The examples of each label."""

    labels: Any
    order: Any
    bounds: Any

    @classmethod
    def of(cls, labels: Any) -> "_Groups":
        unique, counts = np.unique(labels, return_counts=True)
        return cls(unique, np.argsort(labels, kind="stable"), np.append(0, counts.cumsum()))

    def members(self, chosen: Any, draws: Any) -> Any:
        """An example of each of some labels, given by their positions."""
        begin, end = self.bounds[chosen], self.bounds[chosen + 1]
        return self.order[begin + (draws * (end - begin)).astype(np.int64)]


@public("fdbr.vision.datasets")
def siamese_pairs(
    first: Any,
    second: Any,
    key: Any,
    positive: float | None = None,
    count: int | None = None,
    labels: tuple[Any, Any] | None = None,
) -> Any:
    """Return a data set of random pairs of examples, other ones in each epoch.

    Parameters
    ----------
    first, second
        Data sets, as for `fdbr.train.Batches`; they may be the same.
    key
        A key, from which the pairs of each epoch follow.
    positive
        The probability that both examples have one label, or `None`; see `pair_indices`.
    count
        The number of pairs; by default that of the examples of ``first``.
    labels
        The labels of all examples of both, if ``positive`` is given.

    Returns
    -------
    sequence
        A data set of tuples of two examples.

    Raises
    ------
    TypeError
        If ``first`` or ``second`` is no data set, or ``key`` no key.
    ValueError
        As for `pair_indices`; if there are not as many labels as examples, or none with
        ``positive``.

    Notes
    -----
    Bromley et al., "Signature Verification using a Siamese Time Delay Neural Network", NIPS 1993.

    >>> import numpy as np
    >>> from fdbr import random, vision
    >>> digits = {"image": np.arange(6.0), "label": np.array([0, 0, 0, 1, 1, 1])}
    >>> labels = digits["label"], digits["label"]
    >>> pairs = vision.datasets.siamese_pairs(digits, digits, random.key(0), 1.0, labels=labels)
    >>> all(a["label"] == b["label"] for a, b in pairs), len(pairs)
    (True, 6)
    """
    name = "fdbr.vision.datasets.siamese_pairs"
    counts = count_of(name, first), count_of(name, second)
    if labels is None:
        if positive is not None:
            raise ValueError(f"{name}: to draw by positive={positive} takes labels=(…, …)")
        labels = np.zeros(counts[0], int), np.zeros(counts[1], int)
    checked = tuple(_labels(name, "labels", one) for one in labels)
    if tuple(map(len, checked)) != counts:
        raise ValueError(
            f"{name}: the data sets have {counts} examples, but there are "
            f"{tuple(map(len, checked))} labels"
        )
    count = counts[0] if count is None else integer(name, "count", count, least=1)
    return _Pairs((first, second), key, checked, count, positive)


@attrs.frozen(eq=False)
class _Pairs(View):
    """Random pairs of examples of two data sets."""

    datasets: tuple[Any, Any]
    key: Any = attrs.field(repr=False)
    labels: Any = attrs.field(repr=False)
    count: int
    positive: float | None
    epoch: int = 0
    indices: Any = attrs.field(init=False, repr=False)

    @indices.default
    def _drawn(self) -> Any:
        key = random.fold_in(self.key, self.epoch)
        drawn = pair_indices(key, self.labels[0], self.labels[1], self.count, self.positive)
        return lock(np.stack(drawn, axis=1))

    def __len__(self) -> int:
        return self.count

    def example(self, index: int) -> Any:
        numbers = self.indices[index].tolist()
        return tuple(example_of(*pair) for pair in zip(self.datasets, numbers, strict=True))

    def in_epoch(self, number: int) -> Any:
        first, second = (in_epoch(one, number) for one in self.datasets)
        return _Pairs((first, second), self.key, self.labels, self.count, self.positive, number)


@public("fdbr.vision.datasets")
def mix_up(key: Any, first: Any, second: Any, classes: int, alpha: float = 1.0) -> dict[str, Any]:
    r"""Mix two examples with one label each, images and labels in the same proportion.

    The image is :math:`\lambda x_1 + (1 - \lambda) x_2`, where :math:`\lambda` has the distribution
    :math:`\mathrm{Beta}(\alpha, \alpha)`; the label is the mixture of two one-hot vectors.

    Parameters
    ----------
    key
        A key.
    first, second
        Dicts with ``image``, of one shape, and ``label``, an integer.
    classes
        The number of classes.
    alpha
        The distribution's parameter; at 1 all proportions are equally probable.

    Returns
    -------
    dict
        ``image``, floating, and ``label`` of shape ``(classes,)``, float32, which adds up to 1.

    Raises
    ------
    ValueError
        If ``alpha`` is not above 0, the images differ in shape, or a label is no class.

    Notes
    -----
    Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.

    >>> import numpy as np
    >>> from fdbr import random, vision
    >>> black, white = ({"image": np.full((1, 1, 1), x, "float32"), "label": x} for x in (0, 1))
    >>> mixed = vision.datasets.mix_up(random.key(0), black, white, classes=2)
    >>> bool(mixed["image"].item() == mixed["label"][1])
    True
    """
    name = "fdbr.vision.datasets.mix_up"
    classes = integer(name, "classes", classes, least=1)
    if not alpha > 0:
        raise ValueError(f"{name}: alpha must be above 0, got {alpha}")
    images = [host_array(f"{name}: an image", one["image"]) for one in (first, second)]
    if images[0].shape != images[1].shape:
        raise ValueError(
            f"{name}: the images must have one shape, got {images[0].shape} and {images[1].shape}"
        )
    share = np.float32(random.beta(key, alpha, alpha))
    shares = share, 1 - share
    soft = np.zeros(classes, np.float32)
    for one, part in zip((first, second), shares, strict=True):
        if not 0 <= (label := int(one["label"])) < classes:
            raise ValueError(f"{name}: the label {label} is none of {classes} classes")
        soft[label] += part
    dtype = np.result_type(*images, np.float32)
    mixed = sum(part * image.astype(dtype) for part, image in zip(shares, images, strict=True))
    mixed = within(np.asarray(mixed, dtype), *images)
    return {"image": lock(mixed), "label": lock(soft)}


@public("fdbr.vision.datasets")
def mix_up_pairs(pairs: Any, classes: int, key: Any, alpha: float = 1.0) -> Any:
    """Return a data set of mixtures of pairs, other ones in each epoch.

    Parameters
    ----------
    pairs
        A data set of pairs, such as `siamese_pairs` makes.
    classes, alpha
        As for `mix_up`.
    key
        A key, from which the proportions follow.

    Returns
    -------
    sequence
        A data set of dicts, as those of `mix_up`.

    Raises
    ------
    TypeError, ValueError
        As for `fdbr.train.map_examples`; when an example is read, as for `mix_up`.
    """
    return map_examples(functools.partial(_mixed, classes, alpha), pairs, key)


def _mixed(classes: int, alpha: float, key: Any, pair: Any) -> dict[str, Any]:
    first, second = pair
    return mix_up(key, first, second, classes, alpha)
