"""Why some operations are not differentiated, not complex, or without a case: tables of reasons.

The registry's tests and those of the transformations exempt nothing that does not stand here.
"""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.primitive import dispatch, registry
from fdbr.ops.indexing.keys import split
from fdbr.ops.indexing.positions import checked_index
from fdbr.ops.linalg.coincidences import (
    eigenvalue_errors,
    nan_if_chosen,
    nan_if_defective,
    nan_if_mixed,
    nan_if_singular_mixed,
    nan_if_singular_unknown,
    nan_if_unknown,
)
from fdbr.ops.nn.attention.pieces import Settings
from fdbr.ops.nn.suppression import suppress
from fdbr.ops.nn.windows import Geometry
from fdbr.solvers.host import checked, on_host

X = np.array([[-1.25, 0.5], [2.0, -0.75]])
WINDOWS = np.array([[[0, 1], [0, 2]]])
FLAGS = np.array([[True, False], [True, True]])

STEPS = "it is piecewise constant: its derivative is 0 wherever it exists"
TRUTH = "its values are truth values, which do not change by small amounts"
INDICES = "its values are places or counts: integers, which do not change by small amounts"
FACTOR = "it is 1 or NaN, which times any tangent is NaN"
EXACT = "its operands are integers or truth values, which are not differentiated"
CORRECTION = "the paper takes it for a constant"
SHAPE = "its value depends on its operands' shape, dtype or keys alone"


def _key(x: Any) -> Any:
    return ops.astype(ops.abs(x[0]), np.uint64)


def _indices(x: Any) -> Any:
    return ops.astype(ops.abs(x), np.int64)


def _last_written(x: Any) -> Any:
    key, indices, x = split(np.array([0, 0]), x)
    return dispatch(registry["last_written"], (x, *indices), {"key": key})


WITHOUT_DERIVATIVE: dict[str, tuple[str, Any]] = {
    "real_sign": (STEPS, ops.sign),
    "floor": (STEPS, ops.floor),
    "ceil": (STEPS, ops.ceil),
    "trunc": (STEPS, ops.trunc),
    "round": (STEPS, ops.round),
    "floor_divide": (STEPS, lambda x: ops.floor_divide(x, 0.75)),
    "astype_exact": (INDICES, lambda x: ops.astype(x, np.int64)),
    "nan_if_unknown": (
        FACTOR,
        lambda x: nan_if_unknown(0.1, x[:1], x, x[:1], x, x, x, only_vectors=False),
    ),
    "nan_if_mixed": (FACTOR, lambda x: nan_if_mixed(0.1, x[:1], x, x)),
    "nan_if_defective": (FACTOR, lambda x: nan_if_defective(x, ops.abs(x), x[:1])),
    "nan_if_singular_unknown": (
        FACTOR,
        lambda x: nan_if_singular_unknown(
            ops.abs(x[:1]), x, x, x, x[:1], x, x, x, x, only_vectors=True
        ),
    ),
    "nan_if_singular_mixed": (FACTOR, lambda x: nan_if_singular_mixed(ops.abs(x[:1]), x, x, x, x)),
    "nan_if_chosen": (FACTOR, lambda x: nan_if_chosen(x, x)),
    "eigenvalue_errors": (
        "it is a bound that selects elements, and a constant in derivatives",
        lambda x: eigenvalue_errors(x, x),
    ),
    "suppress": (
        INDICES,
        lambda x: suppress(
            ops.stack([x, x, x + 2, x + 2], axis=-1), x, ops.zeros_like(x), threshold=0.1, limit=2
        ),
    ),
    "equal": (TRUTH, lambda x: ops.equal(x, 0.5)),
    "not_equal": (TRUTH, lambda x: ops.not_equal(x, 0.5)),
    "less": (TRUTH, lambda x: ops.less(x, 0.5)),
    "less_equal": (TRUTH, lambda x: ops.less_equal(x, 0.5)),
    "greater": (TRUTH, lambda x: ops.greater(x, 0.5)),
    "greater_equal": (TRUTH, lambda x: ops.greater_equal(x, 0.5)),
    "logical_and": (TRUTH, lambda x: ops.logical_and(x > 0, FLAGS)),
    "logical_or": (TRUTH, lambda x: ops.logical_or(x > 1, FLAGS)),
    "logical_xor": (TRUTH, lambda x: ops.logical_xor(x > 0, FLAGS)),
    "logical_not": (TRUTH, lambda x: ops.logical_not(x > 0)),
    "isfinite": (TRUTH, lambda x: ops.isfinite(ops.where(x > 0, x, np.inf))),
    "isinf": (TRUTH, lambda x: ops.isinf(ops.where(x > 0, x, np.inf))),
    "isnan": (TRUTH, lambda x: ops.isnan(ops.where(x > 0, x, np.nan))),
    "signbit": (TRUTH, ops.signbit),
    "all": (TRUTH, lambda x: ops.all(x > 0, axis=0)),
    "any": (TRUTH, lambda x: ops.any(x > 2.25, axis=0)),
    "checked_index": (
        INDICES,
        lambda x: checked_index(_indices(x), least=0, count=1 << 40, name="getitem"),
    ),
    "checked_lengths": (
        EXACT,
        lambda x: dispatch(
            registry["checked_lengths"], (_indices(x) + 1,), {"function": "lstm", "time": 1 << 40}
        ),
    ),
    "argmax": (INDICES, lambda x: ops.argmax(x, axis=0)),
    "argmin": (INDICES, lambda x: ops.argmin(x, axis=0)),
    "numpys_order": (INDICES, lambda x: np.argsort(x, axis=0)),
    "numpys_parts": (INDICES, lambda x: np.argpartition(x, 0, axis=0)),
    "partition": (INDICES, lambda x: registry["partition"].apply(x, kth=(0,), axis=0)),
    "checked": (TRUTH, lambda x: checked(lambda *_: None, ops.any(x > 0, axis=0), ops.sum(x))),
    "count_nonzero": (INDICES, lambda x: ops.count_nonzero(x > 0, axis=0)),
    "bitwise_and": (EXACT, lambda x: ops.bitwise_and(x > 0, FLAGS)),
    "bitwise_or": (EXACT, lambda x: ops.bitwise_or(x > 1, FLAGS)),
    "bitwise_xor": (EXACT, lambda x: ops.bitwise_xor(x > 0, FLAGS)),
    "bitwise_left_shift": (EXACT, lambda x: ops.bitwise_left_shift(ops.argmax(x, axis=0), 1)),
    "bitwise_right_shift": (EXACT, lambda x: ops.bitwise_right_shift(2 * ops.argmax(x, axis=0), 1)),
    "bitwise_invert": (EXACT, lambda x: ops.bitwise_invert(x > 0)),
    "full_like": (SHAPE, lambda x: ops.zeros_like(x)),
    "region": (SHAPE, lambda x: dispatch(registry["region"], (x,), {"key": (0,)})),
    "last_written": (SHAPE, lambda x: _last_written(x)),
    "argsort": (INDICES, lambda x: ops.argsort(x, axis=0)),
    "searchsorted": (INDICES, lambda x: ops.searchsorted(np.array([-1.0, 1.0]), x)),
    "exponent": (INDICES, lambda x: np.frexp(x)[1]),
    "spacing": (STEPS, lambda x: np.spacing(x) * 2.0**52),
    "on_host": (SHAPE, lambda x: on_host(lambda x: (np.floor(x),), [x], [(x.shape, "float64")])[0]),
    "bitwise_count": (EXACT, lambda x: np.bitwise_count(ops.argmax(x, axis=0))),
    "gammasgn": (STEPS, lambda x: ops.special.gammasgn(x)),
    "gcd": (EXACT, lambda x: np.gcd(ops.argmax(x, axis=0), 2)),
    "top_indices": (INDICES, lambda x: ops.top_k(x, 1, axis=0)[1]),
    "rank_indices": (
        INDICES,
        lambda x: registry["rank_indices"].apply(x, ranks=(0, x.shape[0] // 2), axis=0),
    ),
    "lcm": (EXACT, lambda x: np.lcm(ops.argmax(x, axis=0), 2)),
    "window_winners": (
        INDICES,
        lambda x: dispatch(
            registry["window_winners"],
            (x, x[:, :1]),
            {"geometry": Geometry((2,), (2,), ((0, 0),), (1,))},
        ),
    ),
    "images_of_regions": (
        INDICES,
        lambda x: dispatch(
            registry["images_of_regions"], (np.zeros(x.shape[:-1]), x), {"function": "roi_max_pool"}
        ),
    ),
    "region_peaks": (
        INDICES,
        lambda x: dispatch(
            registry["region_peaks"],
            (x[None, None], WINDOWS, WINDOWS, np.array([0])),
            {},
        ),
    ),
    "random_words": (
        EXACT,
        lambda x: dispatch(registry["random_words"], (_key(x), 0), {"shape": (3,), "use": 0}),
    ),
    "kept_weights": (
        SHAPE,
        lambda x: dispatch(
            registry["kept_weights"],
            (ops.reshape(_key(x), (1, 2)), x),
            {"settings": Settings(1.0, None, None, False, False, 0.5, (), None)},
        ),
    ),
    "support": (TRUTH, lambda x: dispatch(registry["support"], (x,), {"axis": 0})),
    "largest": (STEPS, lambda x: dispatch(registry["largest"], (x,), {"axis": 0})),
    "noise": (
        EXACT,
        lambda x: dispatch(registry["noise"], (_key(x),), {"shape": (3,), "law": "normal"}),
    ),
    "clipped_ratio": (
        CORRECTION,
        lambda x: dispatch(
            registry["clipped_ratio"], (x * x, x * x + 1), {"eps": 1e-5, "limit": 3.0}
        ),
    ),
    "clipped_shift": (
        CORRECTION,
        lambda x: dispatch(
            registry["clipped_shift"], (x, x + 1, x * x), {"eps": 1e-5, "limit": 5.0}
        ),
    ),
    "kept": (
        EXACT,
        lambda x: dispatch(registry["kept"], (_key(x),), {"shape": (3,), "keep_probability": 0.5}),
    ),
}
"""Primitives whose derivative is zero: why, and a call of each."""

UNKNOWN = (
    *("chndtridf", "mathieu_a", "mathieu_b", "ncfdtridfd", "ncfdtridfn", "ncfdtrinc"),
    *("nctdtridf", "obl_cv", "pro_cv", "zetac"),
)
"""Special functions of which no derivative is known by any argument: they refuse them all."""

WITHOUT_CASE: dict[str, set[str]] = {
    "constants": {"e", "inf", "nan", "newaxis", "pi"},
    "new arrays, of nothing that is differentiated": {
        *("arange", "empty", "empty_like", "eye", "ones", "ones_like", "zeros", "zeros_like"),
        *("fft.fftfreq", "fft.rfftfreq"),
    },
    "functions of dtypes": {"can_cast", "finfo", "iinfo", "isdtype", "result_type"},
    "dtypes": {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    },
    "composed of primitives without a derivative": {
        *("accuracy", "isin", "nonzero", "one_hot"),
        *("binary_accuracy", "classification_summary", "f1_score", "precision", "recall"),
    },
    "a count, which does not change by small amounts": {"linalg.matrix_rank"},
    "a solver, whose tests are in tests/solvers": {"linalg.cg"},
    "from outside, of what is not traced": {"from_dlpack"},
}
"""Public names that no case covers, by the reason."""

# --- complex numbers ----------------------------------------------------------------

ORDER = "complex numbers have no order"
ANGLE = "it is defined on the real line: by signs, angles or lengths"
SERIES = "the special function is computed on the real line alone"
GATES = "gates of recurrent cells let a share of real numbers through"
TRAINING = "statistics and losses of networks are those of real numbers"

REAL: dict[str, str] = {
    **dict.fromkeys(
        "spatial_pyramid_pooling roi_max_pool roi_max_align ps_roi_max_pool "
        "ps_roi_max_align".split(),
        ORDER,
    ),
    **dict.fromkeys(
        "roi_average_pool roi_average_align ps_roi_average_pool ps_roi_average_align".split(),
        "regions are of real images",
    ),
    "grid_sample": "places are real",
    **dict.fromkeys(
        "median quantile max_pool adaptive_max_pool fractional_max_pool nextafter fmod fraction "
        "remainder".split(),
        ORDER,
    ),
    **dict.fromkeys("atan2 copysign hypot cbrt softsign ldexp".split(), ANGLE),
    **dict.fromkeys(
        "hard_sigmoid hard_swish hard_silu hard_shrink soft_shrink sparse_plus sparse_sigmoid "
        "crelu prelu rrelu sparsemax".split(),
        ORDER,
    ),
    **dict.fromkeys("swish squareplus log1mexp".split(), SERIES),
    **dict.fromkeys("rfft rfftn ihfft".split(), "it transforms real numbers, by its name"),
    **dict.fromkeys(
        "logaddexp logaddexp2 softplus log_sigmoid mish expit logit entr".split(), SERIES
    ),
    **dict.fromkeys("erfinv erfcinv ndtri gamma gammaln digamma polygamma zeta".split(), SERIES),
    **dict.fromkeys("i0 i1 i0e i1e beta betaln betainc gammainc gammaincc".split(), SERIES),
    **dict.fromkeys("rel_entr kl_div".split(), SERIES),
    **dict.fromkeys(
        "layer_norm rms_norm group_norm instance_norm batch_norm batch_renorm standardize "
        "decorrelated_batch_norm local_response_norm".split(),
        TRAINING,
    ),
    "softmax_cross_entropy": TRAINING,
    **dict.fromkeys("lstm slstm tree_lstm lstm_cell gru_cell mgu_cell".split(), GATES),
    **dict.fromkeys("rnn_tanh_cell rnn_relu_cell".split(), GATES),
    **dict.fromkeys("n_step_lstm n_step_gru n_step_rnn".split(), GATES),
    **dict.fromkeys("absolute_error squared_error squared_difference log_cosh".split(), TRAINING),
    **dict.fromkeys("mean_absolute_error l1_loss huber_loss smooth_l1_loss".split(), TRAINING),
    **dict.fromkeys("binary_cross_entropy binary_cross_entropy_with_logits".split(), TRAINING),
    **dict.fromkeys("sigmoid_cross_entropy sigmoid_focal_loss soft_margin_loss".split(), TRAINING),
    **dict.fromkeys("multilabel_soft_margin_loss bernoulli_nll gaussian_nll".split(), TRAINING),
    **dict.fromkeys("gaussian_kl_divergence gaussian_nll_loss kl_div_loss".split(), TRAINING),
    **dict.fromkeys("poisson_nll_loss margin_ranking_loss multi_margin_loss".split(), TRAINING),
    **dict.fromkeys("hinge_embedding_loss multilabel_margin_loss contrastive".split(), TRAINING),
    **dict.fromkeys("cosine_similarity cosine_embedding_loss triplet decov".split(), TRAINING),
    **dict.fromkeys("pairwise_distance triplet_margin_loss cross_covariance".split(), TRAINING),
    "discriminative_margin_based_clustering_loss": TRAINING,
    "triplet_margin_with_distance_loss": TRAINING,
    **dict.fromkeys("ctc_loss crf1d argmax_crf1d negative_sampling black_out".split(), TRAINING),
    "binary_hierarchical_softmax": TRAINING,
    **dict.fromkeys("cross_entropy nll_loss hinge r2_score mse_loss".split(), TRAINING),
    "deform_conv": "its offsets are places",
}
"""Operations of real numbers, which refuse complex ones: why."""

REAL_CASES: dict[str, str] = {
    "pad-median": ORDER,
    "lp_pool-largest": ORDER,
    "interp-periodic": "positions on a circle are real",
    "linalg.cholesky-upper": "the case multiplies by a transpose: see cholesky-complex",
    "linalg.eig-turning": "the case counts on pairs of conjugate eigenvalues: see eig-complex",
    "linalg.det-its cofactors": "the case takes the gradient of a real function",
    "real-of a number made of its parts": "the parts of a complex number are real",
}
"""Cases of other operations that make sense for real numbers alone: why."""

# --- batches ------------------------------------------------------------------------

ASKS = "it decides by values, and vmap asks every example"

DECIDING: dict[str, str] = {
    **dict.fromkeys(
        "unique_all unique_counts unique_inverse unique_values".split(),
        f"{ASKS} how many elements are equal: the shape of the result depends on that",
    ),
    **dict.fromkeys(
        "roi_max_pool roi_average_pool roi_max_align roi_average_align ps_roi_max_pool "
        "ps_roi_average_pool ps_roi_max_align ps_roi_average_align".split(),
        "regions are cut out one by one",
    ),
}
"""Operations of which the work for a batch depends on its size: why."""
