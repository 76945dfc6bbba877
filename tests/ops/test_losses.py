"""Losses and measures: what they refuse, the ends of their ranges, and measures by examples."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from ops.cases_margins import clustering

X = np.array([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]])
P = np.full((2, 3), 0.5)
T = np.array([2, 0])
LOGS = ops.log_softmax(np.arange(12.0).reshape(4, 1, 3) % 5)

WRONG = {
    "another shape": (lambda: ops.l1_loss(X, X[:1]), ValueError, "l1_loss: x float64.2,3. and y"),
    "a reduction that there is not": (
        lambda: ops.huber_loss(X, X, reduction="avg"),
        ValueError,
        "huber_loss: reduction 'avg' is not one of 'mean', 'sum', 'none', 'sum_along_second_axis'",
    ),
    "weight": (lambda: ops.mse_loss(X[0], X[1], weight=T), ValueError, "mse_loss: weight float64"),
    "integers": (lambda: ops.l1_loss(T, T), TypeError, "l1_loss: x must be real floating"),
    "delta": (lambda: ops.huber_loss(X, X, delta=0), ValueError, "huber_loss: delta must be pos"),
    "no second axis": (
        lambda: ops.huber_loss(X[0], X[0], reduction="sum_along_second_axis"),
        ValueError,
        "no second axis",
    ),
    "beta": (lambda: ops.smooth_l1_loss(X, X, beta=-1), ValueError, "beta must be at least 0"),
    "label": (
        lambda: ops.softmax_cross_entropy(X, T + 1),
        ValueError,
        "softmax_cross_entropy: labels from 1 to 3 for 3 classes",
    ),
    "label of a loss": (lambda: ops.cross_entropy(X, -T), ValueError, "cross_entropy: labels from"),
    "label of log_probs": (
        lambda: ops.nll_loss(X, T + 1),
        ValueError,
        "nll_loss: labels from 1 to 3",
    ),
    "label of hinge": (lambda: ops.hinge(X, T + 1), ValueError, "hinge: labels from 1 to 3"),
    "label of scores": (lambda: ops.multi_margin_loss(X, T + 1), ValueError, "labels from 1 to 3"),
    "two names": (
        lambda: ops.softmax_cross_entropy(X, T, ignore_label=1, ignore_index=2),
        ValueError,
        "name the same setting",
    ),
    "weight of classes": (
        lambda: ops.cross_entropy(X, T, weight=np.ones(2)),
        ValueError,
        "cross_entropy: weight float64.2. must hold a number for each of the 3 classes",
    ),
    "smoothing": (
        lambda: ops.cross_entropy(X, T, label_smoothing=1.5),
        ValueError,
        r"label_smoothing must lie in \[0, 1\], got 1.5",
    ),
    "probability": (
        lambda: ops.binary_cross_entropy(X, P),
        ValueError,
        r"probabilities in \[0, 1\].*binary_cross_entropy_with_logits",
    ),
    "pos_weight": (
        lambda: ops.binary_cross_entropy_with_logits(X, P, pos_weight=np.ones(2)),
        ValueError,
        "pos_weight float64.2. does not broadcast",
    ),
    "truth": (
        lambda: ops.sigmoid_cross_entropy(X, np.full((2, 3), 2)),
        ValueError,
        "sigmoid_cross_entropy: labels from 2 to 2 for 2 classes",
    ),
    "alpha": (lambda: ops.sigmoid_focal_loss(X, P, alpha=2), ValueError, "alpha must be at most 1"),
    "sign": (lambda: ops.soft_margin_loss(X, P), ValueError, "labels must be 1 or -1"),
    "variance": (lambda: ops.gaussian_nll_loss(X, X, -P), ValueError, "var must be at least 0"),
    "variances": (lambda: ops.gaussian_nll_loss(X, X, P[:, :2]), ValueError, "var float64.2,2."),
    "p": (lambda: ops.multi_margin_loss(X, T, p=3), ValueError, "p must be 1 or 2"),
    "labels": (
        lambda: ops.multilabel_margin_loss(X, np.full((2, 3), 3)),
        ValueError,
        "multilabel_margin_loss: .*3",
    ),
    "margin": (lambda: ops.triplet(X, X, X, margin=0), ValueError, "margin must be positive"),
    "pair": (
        lambda: ops.contrastive(X, X, np.array([1, 2])),
        ValueError,
        "contrastive: labels must be 0 or 1",
    ),
    "pairs": (lambda: ops.contrastive(X, X, T[:1]), ValueError, "must be one for each pair"),
    "examples": (lambda: ops.cross_covariance(X, X[:1]), ValueError, "a row for each example"),
    "no instance": (
        lambda: ops.discriminative_margin_based_clustering_loss(X[None], T, norm=1),
        ValueError,
        "embeddings float64.1,2,3. must have shape",
    ),
    "norm": (
        lambda: ops.discriminative_margin_based_clustering_loss(X[None], T[None, :1], norm=3),
        ValueError,
        "norm must be 1 or 2",
    ),
    "no frames": (lambda: ops.ctc_loss(LOGS[:0], [[1]]), ValueError, "at least one frame"),
    "empty input": (
        lambda: ops.ctc_loss(LOGS, np.array([[1]]), np.array([0])),
        ValueError,
        "input_lengths must lie in 1 … 4, got values from 0 to 0",
    ),
    "blank": (lambda: ops.ctc_loss(LOGS, np.array([[1]]), blank=3), ValueError, "not one of the 3"),
    "blank among labels": (
        lambda: ops.ctc_loss(LOGS, np.array([[1, 0]])),
        ValueError,
        "targets name 0, which is the blank",
    ),
    "label of a sequence": (
        lambda: ops.ctc_loss(LOGS, np.array([[1, 3]])),
        ValueError,
        "ctc_loss: targets from 1 to 3 for 3 classes",
    ),
    "too long a target": (
        lambda: ops.ctc_loss(LOGS, np.array([[1, 1, 1]])),
        ValueError,
        "4 frames for a target that needs 5: .*zero_infinity=True",
    ),
    "labels in a row": (
        lambda: ops.ctc_loss(LOGS, np.array([1, 2]), None, np.array([1])),
        ValueError,
        "target_lengths add up to 1, and there are 2 targets",
    ),
    "no positions": (lambda: ops.crf1d(np.eye(2), [], []), ValueError, "the sequences are empty"),
    "an empty sequence": (
        lambda: ops.crf1d(np.eye(3), X[:, None], T[:, None], np.array([0])),
        ValueError,
        "lengths must lie in 1 … 2, got values from 0 to 0",
    ),
    "longest first": (
        lambda: ops.argmax_crf1d(np.eye(3), [X[:1], X]),
        ValueError,
        "2 sequences at a position after one of 1; the longest sequences come first",
    ),
    "label of a chain": (
        lambda: ops.crf1d(np.eye(3), X, T + 1),
        ValueError,
        "crf1d: labels from 3 to 3 for 3 classes",
    ),
    "transitions": (lambda: ops.crf1d(X, X, T), ValueError, r"shape \(K, K\), got float64.2,3."),
    "sample": (
        lambda: ops.negative_sampling(X, T, np.ones((3, 3)), T + 1),
        ValueError,
        "negative_sampling: samples from 1 to 3 for 3 classes",
    ),
    "rows": (lambda: ops.black_out(X, T, np.ones((3, 2)), T), ValueError, "weight .rows, size."),
    "node": (
        lambda: ops.binary_hierarchical_softmax(
            X, T, np.ones((1, 3)), np.eye(3, dtype=int), np.eye(3)
        ),
        ValueError,
        "binary_hierarchical_softmax: nodes from 0 to 1 for 1 classes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_name(name):
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=f"^fdbr.ops.*{words}"):
        call()


# --- the ends of ranges -------------------------------------------------------------


def test_losses_far_out_neither_overflow_nor_lose_their_derivative():
    far = np.array([[1e4, -1e4]], dtype="float32")
    for call, slope in (
        (lambda x: ops.binary_cross_entropy_with_logits(x, np.array([[0, 1]]), reduction="sum"), 1),
        (lambda x: ops.soft_margin_loss(x, np.array([[-1, 1]]), reduction="sum"), 1),
        (lambda x: ops.sum(ops.log_cosh(x, 0 * x)), 1),
        (lambda x: ops.sum(ops.sigmoid_focal_loss(x, np.array([[0, 1]]), alpha=-1)), 1),
    ):
        value, gradient = fdbr.value_and_grad(call)(far)
        np.testing.assert_allclose(value, 2e4, rtol=1e-3)
        np.testing.assert_allclose(gradient, [[slope, -slope]], rtol=1e-3)


def test_probabilities_of_0_and_1_have_a_loss_of_100_at_most():
    x, y = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])
    value, gradient = fdbr.vjp(lambda x: ops.binary_cross_entropy(x, y, reduction="none"), x)
    np.testing.assert_array_equal(value, [0, 0, 100, 100])
    assert np.isfinite(gradient(np.ones(4))[0]).all()


def test_equal_vectors_have_a_derivative():
    for call in (
        lambda x: ops.contrastive(x, X, np.array([1, 0])),
        lambda x: ops.sum(ops.cosine_similarity(0 * x, X)),
        lambda x: ops.triplet_margin_loss(x, X, X),
    ):
        assert np.isfinite(fdbr.grad(call)(X)).all()


def test_a_cosine_is_of_vectors_that_were_broadcast_first():
    whole = np.broadcast_to(X[:1], X.shape)
    for axis in (0, 1):
        wanted = ops.cosine_similarity(X, whole, axis=axis)
        assert_allclose(ops.cosine_similarity(X, X[:1], axis=axis), wanted)
    assert_allclose(ops.cosine_similarity(X, X[0], axis=0), ops.cosine_similarity(X, whole, axis=0))


def test_labels_that_are_no_classes_are_named_under_vmap_too():
    labels = np.array([[0, 1], [0, 7]])
    with pytest.raises(ValueError, match="labels from 0 to 7 for 3 classes"):
        fdbr.vmap(ops.cross_entropy)(np.ones((2, 2, 3)), labels)


def test_labels_of_classes_along_the_last_axis_are_told_to_name_it():
    logits, labels = np.ones((4, 2, 3)), np.zeros((4, 2), int)
    for loss in (ops.cross_entropy, ops.nll_loss):
        with pytest.raises(ValueError, match=r"float64\[4,2,3\] .* axis 1; .* or axis=-1"):
            loss(logits, labels)
        assert np.isfinite(loss(logits, labels, axis=-1))


def test_if_no_label_counts_the_mean_is_0():
    ignored = np.full(2, -1)
    weight = np.ones(3)
    for call in (
        lambda x: ops.softmax_cross_entropy(x, ignored, ignore_label=-1),
        lambda x: ops.cross_entropy(x, ignored, ignore_index=-1, weight=weight),
        lambda x: ops.nll_loss(x, ignored, ignore_index=-1),
        lambda x: ops.sigmoid_cross_entropy(x, np.full((2, 3), -1)),
        lambda x: ops.negative_sampling(x, ignored, np.eye(3), T, reduction="mean"),
    ):
        value, gradient = fdbr.value_and_grad(call)(X)
        assert value == 0
        assert not gradient.any()


def test_half_precision_is_kept_and_computed_in_float32():
    x = np.linspace(-200, 200, 5000).astype("float16")
    for call in (ops.mse_loss, ops.l1_loss, ops.binary_cross_entropy_with_logits):
        y = (x > 0).astype("float16")
        value = call(x, y)
        assert value.dtype == np.float16
        np.testing.assert_allclose(value, call(x.astype("f8"), y.astype("f8")), rtol=1e-3)


def test_an_infinite_loss_of_a_sequence_is_left_out_if_asked():
    x = np.zeros((2, 2, 3))
    targets = np.array([[1, 1], [1, 2]])
    value, gradient = fdbr.value_and_grad(
        lambda x: ops.ctc_loss(ops.log_softmax(x), targets, reduction="sum", zero_infinity=True)
    )(x)
    assert_allclose(value, 2 * np.log(3))
    assert not gradient[:, 0].any()
    impossible = np.where(np.arange(3) == 1, -np.inf, np.zeros((2, 1, 3)))
    assert ops.ctc_loss(impossible, np.array([[1]])) == np.inf
    gradient = fdbr.grad(lambda x: ops.ctc_loss(x, np.array([[2]])))(impossible)
    assert np.isfinite(gradient).all()


def test_of_ctc_any_form_of_sequences_gives_the_same():
    rng = np.random.default_rng(0)
    x, sizes, counts = ops.log_softmax(rng.normal(size=(6, 3, 4))), [6, 5, 4], [3, 0, 2]
    targets = rng.integers(1, 4, (3, 3))
    expected = ops.ctc_loss(x, targets, sizes, counts, zero_infinity=True)
    rows = [targets[i, :n] for i, n in enumerate(counts)]
    flat, lists = np.concatenate(rows), [x[:n, i] for i, n in enumerate(sizes)]
    assert_allclose(ops.ctc_loss(x, flat, sizes, counts, zero_infinity=True), expected)
    assert_allclose(ops.ctc_loss(lists, rows, zero_infinity=True), expected)
    run = fdbr.jit(lambda *args: ops.ctc_loss(*args, zero_infinity=True))
    args = x, targets, np.array(sizes), np.array(counts)
    assert_allclose([run(*args), run(*args)], [expected, expected])
    each = fdbr.vmap(lambda x, t: ops.ctc_loss(x, t, zero_infinity=True), (1, 0))(x, targets)
    one = [ops.ctc_loss(x[:, i], targets[i], zero_infinity=True) for i in range(3)]
    assert_allclose(each, np.stack(one))
    short = ops.ctc_loss([part.astype("f2") for part in lists], rows, zero_infinity=True)
    assert short.dtype == np.float16
    np.testing.assert_allclose(short, expected, rtol=2e-3)


def test_batches_of_sequences_may_have_lengths_of_their_own():
    rng = np.random.default_rng(6)
    x, targets = ops.log_softmax(rng.normal(size=(2, 5, 3, 4))), rng.integers(1, 4, (2, 3, 2))
    sizes, counts = np.array([[5, 4, 5], [4, 5, 4]]), np.array([[2, 1, 0], [1, 2, 2]])
    cost, labels = rng.normal(size=(4, 4)), rng.integers(0, 4, (2, 5, 3))

    def ctc(*args):
        return fdbr.grad(lambda x: ops.ctc_loss(x, *args[1:]))(args[0])

    def crf(x, labels, sizes):
        return fdbr.grad(lambda x: ops.crf1d(cost, x, labels, sizes))(x)

    found = fdbr.vmap(ctc)(x, targets, sizes, counts)
    each = [ctc(x[i], targets[i], sizes[i], counts[i]) for i in range(2)]
    assert_allclose(found, np.stack(each))
    found = fdbr.vmap(crf)(x, labels, sizes)
    assert_allclose(found, np.stack([crf(x[i], labels[i], sizes[i]) for i in range(2)]))
    score, path = fdbr.vmap(lambda x, n: ops.argmax_crf1d(cost, x, n))(x, sizes)
    for i in range(2):
        one, labels = ops.argmax_crf1d(cost, x[i], sizes[i])
        assert_allclose(score[i], one)
        np.testing.assert_array_equal(path[i], labels)


def test_the_best_path_of_a_chain_is_the_best_of_all():
    rng = np.random.default_rng(1)
    cost, x, lengths = rng.normal(size=(3, 3)), rng.normal(size=(4, 2, 3)), [2, 4]
    value, labels = ops.argmax_crf1d(cost, x, np.array(lengths))
    lists = [x[:2, ::-1], x[2:, 1:]]  # the longest sequence first, position by position
    positions = [*lists[0], *lists[1]]
    score, path = ops.argmax_crf1d(cost, positions)
    assert_allclose(score, value[::-1])
    for i, n in enumerate(lengths):
        ways = list(itertools.product(range(3), repeat=n))
        scores = [sum(x[range(n), i, w]) + sum(cost[w[:-1], w[1:]]) for w in map(np.array, ways)]
        assert ways[np.argmax(scores)] == tuple(labels[:n, i])
        assert_allclose(value[i], max(scores))
        assert (labels[n:, i] == -1).all()
        assert [int(p[1 - i]) for p in path if len(p) > 1 - i] == labels[:n, i].tolist()
        # The likelihood of all paths together is 1.
        losses = [ops.crf1d(cost, x[:n, i], np.array(way)) for way in ways]
        assert_allclose(np.exp(-np.array(losses)).sum(), 1.0)


def test_reductions_are_of_the_losses_themselves():
    truths = np.array([[1, -1, 0], [0, 1, 1]])
    for call, whole in (
        (lambda **r: ops.sigmoid_cross_entropy(X, truths, **r), 5),
        (lambda **r: ops.bernoulli_nll(P, X, **r), 6),
        (lambda **r: ops.gaussian_nll(X, P, -X, **r), 6),
        (lambda **r: ops.gaussian_kl_divergence(X, P, **r), 6),
        (lambda **r: ops.log_cosh(X, P, **r), 6),
        (lambda **r: ops.sigmoid_focal_loss(X, P, **r), 6),
        (lambda **r: ops.mean_absolute_error(X, P, **r), 6),
        (lambda **r: ops.mean_squared_error(X, P, **r), 6),
        (lambda **r: ops.hinge(X, T, **r), 2),
        (lambda **r: ops.contrastive(X, P, np.array([1, 0]), **r), 2),
        (lambda **r: ops.triplet(X, P, -X, **r), 2),
        (lambda **r: ops.black_out(X, T, np.eye(3), T, **r), 2),
        (lambda **r: ops.negative_sampling(X, np.array([1, -1]), np.eye(3), T, **r), 1),
        (lambda **r: ops.crf1d(np.eye(3), X[:, None], T[:, None], **r), 1),
    ):
        each = call(reduction="none")
        assert_allclose(call(reduction="sum"), each.sum())
        assert_allclose(call(reduction="mean"), each.sum() / whole)
    by_batch = ops.sigmoid_cross_entropy(X, truths, normalize=False)
    assert_allclose(by_batch, ops.sigmoid_cross_entropy(X, truths, reduction="sum") / 2)


def test_instances_are_drawn_together_by_sums_of_sizes_too():
    rng = np.random.default_rng(5)
    x, labels = rng.normal(size=(2, 2, 3)), rng.integers(0, 3, (2, 3))
    settings = {"delta_v": 0.25, "beta": 0.5, "gamma": 0.1}
    found = ops.discriminative_margin_based_clustering_loss(x, labels, **settings)
    assert_allclose(np.array(found), np.array(clustering(x, labels, 1)))
    images = x.reshape(2, 2, 3, 1), labels.reshape(2, 3, 1)
    again = ops.discriminative_margin_based_clustering_loss(*images, **settings)
    assert_allclose(np.array(again), np.array(found))


# --- measures -----------------------------------------------------------------------


def test_precision_recall_and_scores_are_ratios_of_counts(xp):
    rng = np.random.default_rng(2)
    scores, labels = rng.normal(size=(40, 4)), rng.integers(-1, 4, 40)
    x, t = xp.asarray(scores), xp.asarray(labels)
    found = ops.classification_summary(x, t, beta=2.0)
    said = scores.argmax(1)
    for c in range(4):
        right = ((said == c) & (labels == c)).sum()
        p, r = right / ((said == c) & (labels >= 0)).sum(), right / (labels == c).sum()
        expected = [p, r, 5 * p * r / (4 * p + r), (labels == c).sum()]
        assert_allclose([float(each[c]) for each in found], expected)
    assert_allclose(ops.precision(x, t)[0], found[0])
    assert_allclose(ops.recall(x, t)[0], found[1])
    assert_allclose(ops.f1_score(x, t)[0], ops.classification_summary(x, t)[2])
    assert ops.precision(x.astype("f4"), t)[0].dtype == np.float32


def test_a_class_that_never_occurs_has_no_precision_and_no_recall():
    found = ops.classification_summary(np.eye(2), np.array([0, 1]), num_classes=3)
    np.testing.assert_array_equal(found[0], [1, 1, np.nan])
    np.testing.assert_array_equal(found[1], [1, 1, np.nan])
    np.testing.assert_array_equal(found[3], [1, 1, 0])


def test_accuracies_count_what_counts(xp):
    x = xp.asarray(np.array([[0.1, 0.7, 0.2], [8.0, 1.0, 2.0], [-8.0, 1.0, 2.0], [-8, -1, -2.0]]))
    labels = xp.asarray(np.array([1, 0, 0, 0]))
    assert float(ops.accuracy(x, labels)) == 0.5
    assert float(ops.accuracy(x, labels, ignore_label=0)) == 1
    assert float(ops.accuracy(x.T, labels, axis=0)) == 0.5
    truths = xp.asarray(np.array([0, -1, 1, -1]))
    assert float(ops.binary_accuracy(xp.asarray(np.array([-2.0, 0, 3, -5])), truths)) == 1
    assert float(ops.binary_accuracy(x[:, 0], 0 * truths - 1)) == 0


def test_measures_have_a_derivative_of_0_and_run_in_batches_and_programs():
    labels = np.array([2, 0])
    slope = fdbr.grad(lambda x: ops.sum(ops.precision(x, labels)[0] + ops.accuracy(x, labels)))(X)
    assert not np.nan_to_num(slope).any()
    batch = np.stack([X, -X, X[::-1]])
    found = fdbr.vmap(lambda x: ops.recall(x, labels)[0])(batch)
    assert_allclose(found, np.stack([ops.recall(x, labels)[0] for x in batch]))
    run = fdbr.jit(lambda x: ops.f1_score(x, labels))
    assert_allclose([*run(X), *run(X)], [*ops.f1_score(X, labels)] * 2)


def test_where_all_are_equal_the_determination_is_0():
    assert ops.r2_score(X[:, 0], np.ones(2)) == 0
    assert np.isfinite(fdbr.grad(lambda x: ops.r2_score(x, np.ones(2)))(X[:, 0])).all()


@pytest.mark.parametrize("p", [1, 2])
def test_a_class_at_minus_infinity_comes_near_no_label(p):
    loss = lambda x: ops.multi_margin_loss(x, np.array([0]), p=p)
    for own in (1.0, np.inf, -np.inf):
        x = np.array([[own, -np.inf, 2.0]])
        expected = max(0.0, 1 - own + 2) ** p / 3
        slope = p * max(0.0, 1 - own + 2) ** (p - 1) / 3 if own < 3 else 0.0
        assert loss(x) == expected
        np.testing.assert_allclose(fdbr.grad(loss)(x), [[-slope, 0.0, slope]])


def test_a_smooth_absolute_error_whose_square_never_ends_is_flat():
    flat = lambda x: ops.smooth_l1_loss(x, np.zeros(2), beta=np.inf, reduction="sum")
    value, slope = fdbr.value_and_grad(flat)(np.array([1.0, -3.0]))
    assert value == 0
    assert not slope.any()


@pytest.mark.parametrize("size", [4, 20_000])
def test_binary_cross_entropy_is_nan_where_the_probability_is_and_bounded_at_the_ends(size):
    x, y = np.linspace(0, 1, size), np.linspace(1, 0.25, size)
    x[1] = np.nan
    losses, pullback = fdbr.vjp(lambda x: ops.binary_cross_entropy(x, y, reduction="none"), x)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
    np.testing.assert_allclose(losses, -(y * logs[0] + (1 - y) * logs[1]), rtol=1e-13)
    (slope,) = pullback(np.ones(size))
    x, y, inner = x[2:-1], y[2:-1], slope[2:-1]
    np.testing.assert_allclose(inner, (1 - y) / (1 - x) - y / x, rtol=1e-12)
    np.testing.assert_allclose(slope[[0, -1]], [0.0, -0.25])
