"""Losses give what PyTorch's give, over their settings and reductions, with their gradients."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fdbr
from fdbr import ops
from nn.recorded import recorded

NAMES = {"kl_div": "kl_div_loss"}  # which SciPy has too
CASES: dict[str, dict[str, np.ndarray]] = {}
for _key, _array in recorded("losses")["all"].items():
    _case, _, _part = _key.rpartition("/")
    CASES.setdefault(_case, {})[_part] = _array


@pytest.mark.parametrize("name", sorted({case.split()[1] for case in CASES}))
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-10), ("float32", 1e-5)])
def test_values_and_gradients_are_pytorchs(name, dtype, tol):
    function = getattr(ops, NAMES.get(name, name))
    for case, parts in CASES.items():
        if case.split()[1] != name:
            continue
        parts = {k: x.astype(dtype) if x.dtype.kind == "f" else x for k, x in parts.items()}
        settings = json.loads(case.split(maxsplit=2)[2])
        settings |= {key: parts[key] for key in ("weight", "pos_weight") if key in parts}
        count = sum(key.startswith("operand ") for key in parts)
        operands = [parts[f"operand {i}"] for i in range(count)]
        moving = [i for i in range(count) if f"grad {i}" in parts]

        def run(given, operands=operands, moving=moving, settings=settings):
            operands = [given.get(str(i), x) for i, x in enumerate(operands)]
            if name in ("ctc_loss", "nll_loss"):
                axis = -1 if name == "ctc_loss" else min(1, operands[0].ndim - 1)
                operands[0] = ops.log_softmax(operands[0], axis=axis)
            return function(*operands, **settings)

        y, pullback = fdbr.vjp(run, {str(i): operands[i] for i in moving})
        (derivatives,) = pullback(np.asarray(parts["ct"], y.dtype)[()])
        assert y.dtype == dtype, case
        assert_allclose(y, parts["y"], rtol=tol, atol=tol, err_msg=case)
        for i in moving:
            expected = parts[f"grad {i}"]
            assert_allclose(derivatives[str(i)], expected, rtol=tol, atol=10 * tol, err_msg=case)
