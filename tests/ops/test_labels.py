"""Labels and lengths that cannot be are refused: in a jitted function at each call."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

X = np.random.default_rng(0).normal(size=(4, 5))
SCORES = ops.log_softmax(np.random.default_rng(1).normal(size=(6, 4, 5)))
CLASSES = np.array([0, 1, 2, 3])
SIGNS = np.array([1, -1, 1, -1])
TARGETS, LENGTHS, TWO = np.array([[1, 2], [2, 3], [1, 4], [3, 1]]), np.full(4, 6), np.full(4, 2)
WEIGHT, SAMPLES = np.ones((6, 5)), np.zeros((4, 2), int)

LOSSES = {
    "softmax_cross_entropy": (lambda t: ops.softmax_cross_entropy(X, t), CLASSES, CLASSES + 2),
    "ignored": (lambda t: ops.nll_loss(X, t, ignore_index=-1), CLASSES - 1, CLASSES - 2),
    "hinge": (lambda t: ops.hinge(X, t), CLASSES, CLASSES - 1),
    "multi_margin_loss": (lambda t: ops.multi_margin_loss(X, t), CLASSES, CLASSES + 2),
    "accuracy": (lambda t: ops.accuracy(X, t), CLASSES, CLASSES + 2),
    "binary_accuracy": (lambda t: ops.binary_accuracy(X[:, 0], t), CLASSES % 2, CLASSES),
    "f1_score": (lambda t: ops.f1_score(X, t)[1], CLASSES, CLASSES + 2),
    "one_hot": (lambda t: ops.one_hot(t, 4), CLASSES, CLASSES + 1),
    "soft_margin_loss": (lambda t: ops.soft_margin_loss(X[:, 0], t), SIGNS, SIGNS + 1),
    "hinge_embedding_loss": (lambda t: ops.hinge_embedding_loss(X[:, 0], t), SIGNS, SIGNS * 2),
    "margin_ranking_loss": (
        lambda t: ops.margin_ranking_loss(X[:, 0], X[:, 1], t),
        SIGNS,
        SIGNS * 0,
    ),
    "cosine_embedding_loss": (
        lambda t: ops.cosine_embedding_loss(X, X[::-1], t),
        SIGNS,
        SIGNS * 0,
    ),
    "contrastive": (lambda t: ops.contrastive(X, X[::-1], t), CLASSES % 2, CLASSES),
    "binary_cross_entropy": (
        lambda p: ops.binary_cross_entropy(p, CLASSES % 2.0),
        SIGNS / 4 + 0.5,
        SIGNS / 1.0,
    ),
    "gaussian_nll_loss": (lambda v: ops.gaussian_nll_loss(X, X, v), X * X, -X * X),
    "negative_sampling": (
        lambda t: ops.negative_sampling(X, t, WEIGHT, SAMPLES),
        CLASSES,
        CLASSES + 3,
    ),
    "black_out": (lambda s: ops.black_out(X, CLASSES, WEIGHT, s), SAMPLES, SAMPLES + 6),
    "clusters": (
        lambda t: ops.discriminative_margin_based_clustering_loss(np.ones((1, 3, 4)), t)[0],
        np.array([[0, 1, 2, 3]]),
        np.array([[0, 1, 2, 4]]),
    ),
    "targets": (lambda t: ops.ctc_loss(SCORES, t, LENGTHS, TWO), TARGETS, TARGETS + 1),
    "blanks": (lambda t: ops.ctc_loss(SCORES, t, LENGTHS, TWO), TARGETS, TARGETS * 0),
    "frames": (lambda n: ops.ctc_loss(SCORES, TARGETS, n, TWO), LENGTHS, LENGTHS - 5),
    "crf1d": (
        lambda n: ops.crf1d(np.eye(5), SCORES, np.zeros((6, 4), int), n),
        LENGTHS,
        LENGTHS * 0,
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_label_that_cannot_be_is_refused_at_each_call_of_a_jitted_function(name):
    loss, good, bad = LOSSES[name]
    jitted = fdbr.jit(loss)
    for _ in range(3):
        assert np.allclose(jitted(good), loss(good))
    for refuses in (loss, jitted, lambda one: fdbr.vmap(loss)(np.stack([good, one]))):
        with pytest.raises(ValueError, match=r"fdbr\.ops\.\w+: "):
            refuses(bad)


def test_a_jitted_loss_of_whole_sequences_is_that_of_shorter_ones_too():
    shorter = np.array([3, 6, 4, 5])
    for name in ("frames", "crf1d"):
        loss = LOSSES[name][0]
        jitted = fdbr.jit(loss)
        assert np.allclose([jitted(LENGTHS) for _ in range(3)], loss(LENGTHS), rtol=1e-12, atol=0)
        assert np.isclose(jitted(shorter), loss(shorter), rtol=1e-12)


@pytest.mark.parametrize("f", [ops.softmax_cross_entropy, ops.cross_entropy])
@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 2, 5)], ids=str)
def test_floating_labels_are_called_labels_and_told_to_be_integers(f, shape):
    logits = (
        np.zeros((*shape, 4)) if f is ops.softmax_cross_entropy else np.zeros((3, 4, *shape[1:]))
    )
    floating = np.zeros(shape, np.float32)
    text = rf"labels float32\[{','.join(map(str, shape))}\] are floating: .* labels\.astype\(int\)"
    with pytest.raises(ValueError, match=text):
        f(logits, floating)
    assert f(logits, floating.astype(int)) == pytest.approx(np.log(4))
