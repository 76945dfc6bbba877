"""Recurrent cells and layers refuse what does not fit, and say what would."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops
from nn.layer_cases import KEY, numbers


def cell_of(name="LSTMCell", **options):
    return getattr(nn, name).init(KEY, 3, 2, dtype="float64", **options)


def network(name="LSTM", **options):
    return getattr(nn, name).init(KEY, 3, 2, dtype="float64", **options)


def ragged():
    return [numbers((n, 3), "float64") for n in (2, 4, 1, 4)]


NET = network("GRU", num_layers=2)
PAIR = (np.zeros(2), np.zeros(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NET([]), ValueError, r"GRU: xs has no sequence"),
        (lambda: NET([*ragged(), np.zeros((0, 3))]), ValueError, r"xs\[4\] is an empty sequence"),
        (lambda: NET(np.zeros((0, 2, 3))), ValueError, r"float64\[0,2,3\] is an empty sequence"),
        (lambda: NET(np.zeros((4, 2, 5))), ValueError, r"x must have shape \(time, \*batch, 3\)"),
        (
            lambda: NET([np.zeros((4, 5))]),
            ValueError,
            r"shape \(length, 3\), got xs\[0\]",
        ),
        (lambda: NET([np.zeros((4, 3)), np.zeros(4)]), ValueError, r"xs\[1\] float64\[4\]"),
        (
            lambda: NET(np.zeros((4, 2, 3)), np.zeros((1, 2, 2))),
            ValueError,
            r"h of the state must have shape \(2, 2, 2\), .* got float64\[1,2,2\]",
        ),
        (lambda: NET(ragged(), np.zeros((2, 3, 2))), ValueError, r"must have shape \(2, 4, 2\)"),
        (lambda: NET(ragged(), PAIR), TypeError, r"the state must be \(h\), got 2 arrays"),
        (
            lambda: cell_of()(None, np.zeros(4)),
            ValueError,
            r"LSTMCell: x must have shape \(\.\.\.",
        ),
        (lambda: cell_of()(np.zeros(2), np.zeros(3)), TypeError, r"must be a pair \(h, c\)"),
        (
            lambda: cell_of()(PAIR, np.zeros((4, 3))),
            ValueError,
            r"h of the state must have shape \(4, 2\) beside x float64\[4,3\], got float64\[2\]",
        ),
        (lambda: nn.scan(cell_of(), None, np.zeros((0, 3))), ValueError, "must have a step"),
        (lambda: nn.scan(ops.add, None, np.zeros(3)), TypeError, "give the first state"),
        (lambda: nn.LSTM.init(KEY, 3, 2, dropout=1.0), ValueError, r"in \[0, 1\)"),
        (lambda: nn.LSTM.init(KEY, 3, 2, proj_size=2), ValueError, "must be below hidden_size"),
        (lambda: nn.LSTM.init(KEY, 3, 0), ValueError, "hidden_size must be at least 1"),
        (lambda: nn.RNN.init(KEY, 3, 2, nonlinearity="elu"), ValueError, "nonlinearity must be"),
        (lambda: nn.ZoneoutLSTMCell.init(KEY, 3, 2, c_rate=1), ValueError, r"c_rate .* \[0, 1\)"),
        (
            lambda: nn.NaryTreeLSTM.init(KEY, 3, 2)(PAIR, np.zeros(3)),
            ValueError,
            "a node has 2 children, or none if it is a leaf, and got 1",
        ),
        (
            lambda: nn.ChildSumTreeLSTM.init(KEY, 3, 2)(PAIR, None, np.zeros(3)),
            ValueError,
            r"child 1 is missing \(None\)",
        ),
        (lambda: nn.ChildSumTreeLSTM.init(KEY, 3, 2)(None), TypeError, "a leaf needs an x"),
        (
            lambda: ops.transpose_sequence([np.zeros(1), np.zeros(2)]),
            ValueError,
            r"the lengths \[1, 2\] must not increase",
        ),
        (lambda: ops.pad_sequence([np.zeros(3)], length=2), ValueError, "a sequence has 3"),
        (lambda: ops.pad_sequence([]), ValueError, "sequences has no sequence"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_an_error_names_the_path_of_the_layer():
    @fdbr.frozen
    class Net:
        encoder: nn.LSTM

        def __call__(self, xs):
            return self.encoder(xs)[0]

    with pytest.raises(ValueError, match=r"in model Net\.encoder \(LSTM\)"):
        Net(network())([np.zeros((0, 3))])
