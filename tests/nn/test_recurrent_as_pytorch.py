"""Recurrent cells, and layers of them, give what PyTorch's give."""

import ast

import numpy as np
import pytest

import fdbr
from fdbr import nn, tree
from fdbr.testing import assert_allclose
from nn.layer_cases import KEY
from nn.recorded import recorded

RECORDED = recorded("recurrent")
WEIGHTS = ("weight_", "bias_")


def arrays_of(case):
    """The arrays of a case by name: what was given and came out, and the derivatives of both."""
    parts, start = RECORDED[case], 0
    values, others = {}, {}
    for entry in str(parts["form"]).split(","):
        name, _, shape = entry.partition(":")
        shape = tuple(map(int, shape.split("x")))
        stop = start + int(np.prod(shape))
        values[name] = parts["values"][start:stop].reshape(shape)
        others[name] = parts["gradients and cotangents"][start:stop].reshape(shape)
        start = stop
    return values, others


def setting(value):
    return value if value.isalpha() and value[0].islower() else ast.literal_eval(value)


def made(case, values):
    """The layer of a case, with PyTorch's weights, and these by its paths."""
    kind, *options = case.partition(" of lengths ")[0].split()
    pairs = [option.split("=") for option in options]
    options = {name: setting(value) for name, value in pairs}
    layer = getattr(nn, kind).init(KEY, 3, 2, dtype="float64", **options)
    paths = tree.paths(layer)
    names = [layer.torch_names()[p] for p in paths] if hasattr(layer, "torch_names") else paths
    assert set(names) == {name for name in values if name.startswith(WEIGHTS)}
    layer = tree.unflatten(tree.structure(layer), [values[name] for name in names])
    return layer, names


def called(layer, given):
    """The outputs by PyTorch's names."""
    state = (given["h"], given["c"]) if "c" in given else given["h"]
    if "x" not in given:
        y, state = layer([given[name] for name in sorted(given) if name[0] == "x"], state)
        outs = {f"y {i}": part for i, part in enumerate(y)}
    elif type(layer).__name__.endswith("Cell"):
        state, outs = layer(state, given["x"])[0], {}
    else:
        y, state = layer(given["x"], state)
        outs = {"y": y}
    parts = state if isinstance(state, tuple) else (state,)
    return outs | dict(zip(("new h", "new c"), parts, strict=False))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", RECORDED)
def test_values_and_gradients_are_pytorchs(case, dtype):
    values, others = tree.map(lambda leaf: leaf.astype(dtype), arrays_of(case))
    layer, names = made(case, values)
    given = {k: v for k, v in values.items() if k in ("h", "c", "x") or k[:2] == "x "}
    outs, pullback = fdbr.vjp(called, layer, given)
    by_layer, by_given = pullback({name: others[name] for name in outs})
    derivatives = by_given | dict(zip(names, tree.leaves(by_layer), strict=True))
    assert {*outs, *derivatives} == set(values)
    tolerance = 1e-11 if dtype == "float64" else 1e-5
    for found, expected in ((outs, values), (derivatives, others)):
        for name, array in found.items():
            assert array.dtype == dtype
            assert_allclose(array, expected[name], rtol=tolerance, atol=tolerance)


def test_arrays_are_found_by_pytorchs_names():
    lstm = nn.LSTM.init(KEY, 3, 2, num_layers=2, bidirectional=True)
    assert lstm.weight_ih_l0 is lstm.cells[0].weight_ih
    assert lstm.weight_hh_l1_reverse is lstm.cells[3].weight_hh
    assert lstm.weight_ih_l1.shape == (8, 4)
    with pytest.raises(AttributeError, match="has no attribute 'weight_hr_l0'"):
        _ = lstm.weight_hr_l0
    with pytest.raises(AttributeError, match="has no attribute 'weight_ih_l2'"):
        _ = lstm.weight_ih_l2


def test_a_state_dict_of_pytorchs_loads_by_its_names_and_comes_back():
    gru = nn.GRU.init(KEY, 3, 2, num_layers=2, bidirectional=True, dtype="float64")
    values, _ = arrays_of("GRU num_layers=2 bidirectional=True")
    state = {name: array for name, array in values.items() if name.startswith(WEIGHTS)}
    loaded = nn.load_torch_state(gru, state)
    np.testing.assert_array_equal(loaded.cells[3].bias_hh, state["bias_hh_l1_reverse"])
    back = nn.save_torch_state(loaded)
    assert set(back) == set(state)
