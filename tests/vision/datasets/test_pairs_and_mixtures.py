"""Pairs and mixtures are pure functions of a key."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fdbr import random, train
from fdbr.vision import datasets

LABELS = st.lists(st.integers(-3, 3), min_size=1, max_size=12).map(np.array)


@given(LABELS, LABELS, st.integers(0, 2**32 - 1))
def test_pairs_have_one_label_or_two(first, second, seed):
    key = random.key(seed)
    for positive, equal in ((1.0, True), (0.0, False)):
        possible = (first[:, None] == second) if equal else (first[:, None] != second)
        if not possible.any():
            with pytest.raises(ValueError, match="there are no pairs of"):
                datasets.pair_indices(key, first, second, 20, positive)
            continue
        a, b = datasets.pair_indices(key, first, second, 20, positive)
        assert ((first[a] == second[b]) == equal).all()
        assert a.dtype == b.dtype == np.int64


def test_pairs_come_in_these_proportions():
    first, second = np.array([0, 0, 0, 1, 2]), np.array([1, 2, 2, 5])
    a, b = datasets.pair_indices(random.key(1), first, second, 40_000, 0.3)
    same = first[a] == second[b]
    assert abs(same.mean() - 0.3) < 0.01
    # Labels that allow it are equally probable, then the examples of a label.
    for index in (3, 4):
        assert abs((a[same] == index).mean() - 1 / 2) < 0.02
    for index, share in ((0, 1 / 9), (2, 1 / 9), (3, 1 / 3), (4, 1 / 3)):
        assert abs((a[~same] == index).mean() - share) < 0.02
    after_one = second[b][~same & (first[a] == 1)]
    assert abs((after_one == 2).mean() - 1 / 2) < 0.02
    assert set(after_one.tolist()) == {2, 5}
    a, b = datasets.pair_indices(random.key(2), first, second, 40_000)
    assert np.abs(np.bincount(a) / 40_000 - 1 / 5).max() < 0.01
    assert np.abs(np.bincount(b) / 40_000 - 1 / 4).max() < 0.01


def test_pairs_change_with_the_epoch_alone():
    data = {"image": np.arange(6.0), "label": np.array([0, 0, 0, 1, 1, 1])}
    pairs = datasets.siamese_pairs(
        data, data, random.key(0), 0.5, count=50, labels=(data["label"], data["label"])
    )
    again = [(a["image"].item(), b["image"].item()) for a, b in pairs]
    assert again == [(a["image"].item(), b["image"].item()) for a, b in pairs.in_epoch(0)]
    assert again != [(a["image"].item(), b["image"].item()) for a, b in pairs.in_epoch(1)]
    first, second = next(iter(train.Batches(pairs, 50)))
    assert abs((first["label"] == second["label"]).mean() - 0.5) < 0.2


def test_errors_of_pairs():
    data, labels = np.arange(4.0), np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"takes labels=\("):
        datasets.siamese_pairs(data, data, random.key(0), 0.5)
    with pytest.raises(ValueError, match=r"have \(4, 4\) examples, but there are \(4, 3\) labels"):
        datasets.siamese_pairs(data, data, random.key(0), 0.5, labels=(labels, labels[:3]))
    with pytest.raises(ValueError, match=r"positive must be a probability, got 1\.5"):
        datasets.pair_indices(random.key(0), labels, labels, 3, 1.5)
    with pytest.raises(ValueError, match="first must be the integer labels"):
        datasets.pair_indices(random.key(0), labels * 0.5, labels, 3, 0.5)


def test_mixtures_have_soft_labels():
    generator = np.random.default_rng(0)
    data = {
        "image": generator.normal(size=(9, 3, 4, 4)).astype("float32"),
        "label": np.arange(9) % 3,
    }
    pairs = datasets.siamese_pairs(data, data, random.key(0))
    mixed = datasets.mix_up_pairs(pairs, 3, random.key(1), alpha=0.4)
    for (first, second), one in zip(pairs, mixed, strict=True):
        assert one["label"].dtype == one["image"].dtype == np.float32
        np.testing.assert_allclose(one["label"].sum(), 1, rtol=1e-6)
        difference = first["image"] - second["image"]
        if difference.any() and first["label"] != second["label"]:
            share = one["label"][first["label"]]
            expected = second["image"] + share * difference
            np.testing.assert_allclose(one["image"], expected, rtol=1e-5, atol=1e-6)
    batch = next(iter(train.Batches(mixed, 9)))
    assert batch["label"].shape == (9, 3)
    example = {"image": np.zeros((3, 2, 2)), "label": 3}
    for other, classes, alpha, message in (
        (example, 3, 1.0, "the label 3 is none of 3 classes"),
        (example, 4, 0.0, "alpha must be above 0"),
        ({"image": np.zeros(2), "label": 0}, 4, 1.0, "the images must have one shape"),
    ):
        with pytest.raises(ValueError, match=message):
            datasets.mix_up(random.key(0), example, other, classes, alpha)
