"""No derivative makes the host wait for a GPU, and few values do; and every operation runs on the
device of its arrays, whichever is the current one.
"""

from typing import Any

import numpy as np
import pytest
import shadow
from hypothesis import given

import fdbr
from ops.cases import CASES, few
from ops.test_values import bent, on

PLACES = "it asks whether places are in range"
REGIONS = "regions are cut out one by one"
COUNTS = "the shape of the result depends on the elements"
FAILS = "it raises where there is no result"
LABELS = "it asks whether labels are classes"
TARGETS = "it reads the labels and lengths, on which the shapes of what follows depend"
POWERS = "how often it squares depends on the norm"
HOST = "CuPy has no such function of matrices: it is computed in host memory"
EQUAL = "it asks whether eigenvalues or singular values are equal"
ORDER = "it looks whether there is NaN, and whether shares are in range"

# How often the value may wait, by the operation's name, and why.
VALUES = {
    **dict.fromkeys(("getitem", "take", "take_along_axis", "gather", "scatter"), (2, PLACES)),
    **dict.fromkeys(("at", "embed", "softmax_cross_entropy"), (2, PLACES)),
    "max_unpool": (2, PLACES),
    "as_strided": (2, PLACES),
    **dict.fromkeys(("hinge", "multilabel_margin_loss"), (1, LABELS)),
    **dict.fromkeys(("cross_entropy", "nll_loss", "multi_margin_loss"), (2, LABELS)),
    **dict.fromkeys(("sigmoid_cross_entropy", "soft_margin_loss"), (1, LABELS)),
    **dict.fromkeys(("hinge_embedding_loss", "contrastive", "cosine_embedding_loss"), (1, LABELS)),
    "discriminative_margin_based_clustering_loss": (2, LABELS),
    **dict.fromkeys(("ctc_loss", "crf1d"), (5, TARGETS)),
    **dict.fromkeys(("negative_sampling", "black_out"), (4, LABELS)),
    "binary_hierarchical_softmax": (5, LABELS),
    **dict.fromkeys(("roi_max_pool", "roi_average_pool", "roi_average_align"), (1, REGIONS)),
    "roi_max_align": (1, REGIONS),
    **dict.fromkeys("ps_roi_max_pool ps_roi_average_pool".split(), (1, REGIONS)),
    **dict.fromkeys("ps_roi_average_align ps_roi_max_align".split(), (1, REGIONS)),
    **dict.fromkeys(
        ("unique_values", "unique_counts", "unique_inverse", "unique_all"), (3, COUNTS)
    ),
    "repeat": (2, COUNTS),
    "quantile": (3, ORDER),
    "linalg.solve_triangular": (1, FAILS),
    "linalg.det": (1, "its derivative is another one near singular matrices"),
    "linalg.expm": (2, POWERS),
    **dict.fromkeys(("linalg.sqrtm", "linalg.logm"), (1, HOST)),
}
# And its derivative.
DERIVATIVES = {
    **dict.fromkeys(("roi_average_pool", "ps_roi_average_pool"), (1, REGIONS)),
    **dict.fromkeys(("ps_roi_average_align", "ps_roi_max_align"), (3, REGIONS)),
    **dict.fromkeys(("roi_average_align", "roi_max_align"), (3, REGIONS)),
    "linalg.det": (4, "it is another one near singular matrices"),
    **dict.fromkeys(("linalg.eigh", "linalg.eigvals"), (1, EQUAL)),
    **dict.fromkeys(("linalg.eig", "linalg.svd"), (2, EQUAL)),
    "linalg.expm": (2, POWERS),
    **dict.fromkeys(("linalg.logm", "linalg.sqrtm"), (2, HOST)),
}


OWN = {"sign", "power-integer array"}  # whose cases have operators of plain arrays in them


@pytest.fixture(autouse=True)
def _special_functions_that_cupy_lacks_do_not_count(monkeypatch):
    monkeypatch.setattr(
        "fdbr.ops.special.library.to_numpy",
        lambda x: x._data if isinstance(x, shadow.Array) else np.asarray(x),
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations_run_where_their_arrays_lie_and_the_host_waits_for_few(case):
    @few(20)
    @given(case.arguments)
    def check(args: Any) -> None:
        with shadow.Device(0 if case.name in OWN else 1):
            mine = on(shadow.module, args)
        with np.errstate(all="ignore"), shadow.counting() as forward:
            out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), mine)
        with out.device:
            cotangent = shadow.module.ones(out.shape, dtype=out.dtype)
        with np.errstate(all="ignore"), shadow.counting() as backward:
            gradients = pullback(cotangent)
        assert {leaf.device for leaf in fdbr.tree.leaves(gradients)} <= {out.device}
        assert forward.waits <= VALUES.get(operation, (0,))[0]
        assert backward.waits <= DERIVATIVES.get(operation, (0,))[0]

    operation = case.name.split("-")[0]
    check()
