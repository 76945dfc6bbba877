"""A label to ignore, where labels are probabilities: refused, as by PyTorch."""

import numpy as np
import pytest

from fdbr import ops

LOGITS = np.zeros((2, 3))
SOFT = np.full((2, 3), 1 / 3)


def test_cross_entropy_refuses_an_index_to_ignore_among_probabilities():
    with pytest.raises(
        ValueError, match=r"cross_entropy: ignore_index=1 applies to integer labels"
    ):
        ops.cross_entropy(LOGITS, SOFT, ignore_index=1)
    for name in ("ignore_index", "ignore_label"):
        with pytest.raises(ValueError, match=r"ignore_label=1 applies to integer labels"):
            ops.softmax_cross_entropy(LOGITS, SOFT, **{name: 1})


def test_a_negative_index_to_ignore_means_none_among_probabilities():
    assert np.isclose(ops.cross_entropy(LOGITS, SOFT), np.log(3))
    assert np.isclose(ops.cross_entropy(LOGITS, SOFT, ignore_index=-1), np.log(3))
    assert np.isclose(ops.softmax_cross_entropy(LOGITS, SOFT), np.log(3))
