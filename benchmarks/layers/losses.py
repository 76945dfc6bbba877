"""Losses, of predictions beside targets that stay."""

import numpy as np

from benchmarks.layers.functions import both, row

__all__ = ["LOSSES"]

SHAPE = (256, 1_000)
GENERATOR = np.random.default_rng(3)
NUMBERS = GENERATOR.standard_normal(SHAPE).astype(np.float32)
SHARES = GENERATOR.uniform(size=SHAPE).astype(np.float32)
SHARES_OF_ONE = SHARES / SHARES.sum(axis=1, keepdims=True)
SIGNS = np.where(NUMBERS > 0, 1, -1).astype(np.float32)
LABELS = GENERATOR.integers(0, SHAPE[1], SHAPE[0])
SIGNS_OF_ROWS = SIGNS[:, 0].copy()
TIMES, CLASSES, LENGTH = (100, 32), 40, 20
LETTERS = GENERATOR.integers(1, CLASSES, (TIMES[1], LENGTH))


LOSSES = [
    both("mse_loss", SHAPE, NUMBERS),
    both("l1_loss", SHAPE, NUMBERS),
    both("smooth_l1_loss", SHAPE, NUMBERS),
    both("huber_loss", SHAPE, NUMBERS),
    both("soft_margin_loss", SHAPE, SIGNS),
    both("hinge_embedding_loss", SHAPE, SIGNS),
    both("binary_cross_entropy_with_logits", SHAPE, SHARES),
    both("kl_div", SHAPE, SHARES_OF_ONE, reduction="batchmean"),
    both("poisson_nll_loss", SHAPE, SHARES),
    both("gaussian_nll_loss", SHAPE, NUMBERS, SHARES + 1),
    both("multi_margin_loss", SHAPE, LABELS),
    both("multilabel_soft_margin_loss", SHAPE, (SIGNS + 1) / 2),
    both("cosine_embedding_loss", SHAPE, NUMBERS, SIGNS_OF_ROWS),
    both("margin_ranking_loss", SHAPE, NUMBERS, SIGNS),
    both("triplet_margin_loss", SHAPE, NUMBERS, SHARES),
    both("cross_entropy", SHAPE, LABELS),
    both("nll_loss", SHAPE, LABELS),
    row(
        "binary_cross_entropy",
        SHAPE,
        lambda fdbr, x: fdbr.ops.binary_cross_entropy(fdbr.ops.sigmoid(x), SHARES),
        lambda torch, x: torch.nn.functional.binary_cross_entropy(
            torch.sigmoid(x), torch.from_numpy(SHARES)
        ),
    ),
    row(
        "ctc_loss",
        (*TIMES, CLASSES),
        lambda fdbr, x: fdbr.ops.ctc_loss(
            fdbr.ops.log_softmax(x), LETTERS, [TIMES[0]] * TIMES[1], [LENGTH] * TIMES[1]
        ),
        lambda torch, x: torch.nn.functional.ctc_loss(
            torch.log_softmax(x, -1),
            torch.from_numpy(LETTERS),
            [TIMES[0]] * TIMES[1],
            [LENGTH] * TIMES[1],
        ),
    ),
]
