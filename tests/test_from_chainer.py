"""Every name of Chainer's has its row in docs/from-chainer.json, and leads somewhere."""

import inspect

import numpy as np
import pytest
from tables import check_row, reasons, rows, table

import fdbr
from fdbr import nn, ops, random, tree

ROWS = rows("from-chainer")
COUNTS = {
    "functions": 216,
    "links": 62,
    "initializers": 17,
    "distributions": 19,
    "function_hooks": 4,
    "link_hooks": 4,
    "core": 61,
    "config": 19,
    "gradient_check": 7,
}
"""How many names Chainer 7.8.1 has in each list."""


def test_every_name_of_a_list_has_a_row():
    assert {kind: len(part) for kind, part in table("from-chainer").items()} == COUNTS


@pytest.mark.parametrize(("kind", "name", "row"), ROWS, ids=lambda value: str(value)[:40])
def test_a_row_leads_somewhere_or_says_why_not(kind, name, row):
    check_row(row)


def test_hardly_anything_has_no_counterpart():
    assert len(reasons("from-chainer")) <= 6


KEY = random.key(0)
D = fdbr.distributions
X = np.array([[-1.0, 2.0, 0.5, 4.0], [3.0, 1.0, -2.0, 0.25]])
MAPS = np.arange(32.0).reshape(1, 8, 2, 2)
ROW = np.arange(4.0).reshape(1, 1, 4)
IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)


def default(function, name):
    return inspect.signature(function).parameters[name].default


def takes_a_key(function):
    return "key" in inspect.signature(function).parameters


def regions(function):
    """Whether a region of two columns and one row is told by x before y."""
    boxes = np.array([[0.0, 0, 0, 1, 0]])
    chainers = function(IMAGE, np.array([[0.0, 0, 0, 0, 1]]), 1, box_format="yxyx")
    return np.array_equal(function(IMAGE, boxes, 1), chainers)


def same_shuffle(function):
    """Whether the channels of Chainer's order are another one."""
    return not np.array_equal(function(MAPS, 2), function(MAPS, 2, mode="DCR"))


def stride_of(model):
    """The strides of the first two convolutions in the first block of the second stage."""
    block = model.init(KEY, 10, width=4).layer2[0]
    return [np.max(conv.stride) for conv in (block.conv1, block.conv2)]


def gates():
    """Chainer's interleaved gates, as stacked ones."""
    c, x = np.ones((2, 1)), X  # cell, input, forget, output
    stacked = x[:, [1, 2, 0, 3]]
    ours, chainers = ops.lstm(c, stacked), ops.lstm(c, x, interleaved=True)
    return all(np.allclose(a, b) for a, b in zip(ours, chainers, strict=True))


def state_is_returned(cell):
    layer = cell.init(KEY, 3, 2)
    state = layer.initial_state(1)
    after, _ = layer(state, np.ones((1, 3), "float32"))
    return tree.structure(after) == tree.structure(state)


DIFFERENCES = {
    # functions
    "leaky_relu": lambda: ops.leaky_relu(-1.0) == -0.01,
    "hard_sigmoid": lambda: (
        np.isclose(ops.hard_sigmoid(1.0), 4 / 6)
        and np.isclose(ops.hard_sigmoid(1.0, slope=0.2), 0.7)
    ),
    **{
        f"max_pooling_{n}": lambda: (
            ops.max_pool(ROW, 3, 2).shape == (1, 1, 1)
            and ops.max_pool(ROW, 3, 2, cover_all=True).shape == (1, 1, 2)
        )
        for n in ("1d", "2d", "3d", "nd")
    },
    **{
        f"unpooling_{n}": lambda: default(ops.unpooling, "cover_all") is False
        for n in ("1d", "2d", "3d", "nd")
    },
    "upsampling_2d": lambda: default(ops.max_unpool, "cover_all") is False,
    "batch_normalization": lambda: (
        default(ops.batch_norm, "eps") == 1e-5 and len(ops.batch_norm(X)) == 3
    ),
    "huber_loss": lambda: ops.huber_loss(X, 0 * X).shape == (),
    "local_response_normalization": lambda: (
        default(ops.local_response_norm, "k") == 1
        and default(ops.local_response_norm, "average") is True
    ),
    "softmax_cross_entropy": lambda: default(ops.softmax_cross_entropy, "ignore_label") is None,
    "softmax": lambda: np.allclose(ops.softmax(X[None]).sum(axis=-1), 1),
    "log_softmax": lambda: np.allclose(np.exp(ops.log_softmax(X[None])).sum(axis=-1), 1),
    "gumbel_softmax": lambda: np.allclose(ops.gumbel_softmax(X[None], key=KEY).sum(axis=-1), 1),
    "lstm": gates,
    "depth2space": lambda: same_shuffle(ops.pixel_shuffle),
    "space2depth": lambda: same_shuffle(ops.pixel_unshuffle),
    "resize_images": lambda: default(ops.interpolate, "mode") == "nearest",
    "spatial_transformer_grid": lambda: (
        ops.affine_grid(np.ones((1, 2, 3)), (3, 4)).shape == (1, 3, 4, 2)
    ),
    "spatial_transformer_sampler": lambda: (
        ops.grid_sample(IMAGE, np.zeros((1, 2, 5, 2))).shape == (1, 1, 2, 5)
    ),
    "normalize": lambda: (
        default(ops.normalize, "eps") == 1e-12 and default(ops.normalize, "add_eps") is False
    ),
    "dropout": lambda: takes_a_key(ops.dropout),
    "zoneout": lambda: takes_a_key(ops.zoneout),
    "gaussian": lambda: takes_a_key(ops.gaussian),
    "rrelu": lambda: ops.rrelu(X).shape == X.shape and takes_a_key(ops.rrelu),
    "simplified_dropconnect": lambda: takes_a_key(ops.simplified_dropconnect),
    "connectionist_temporal_classification": lambda: np.isclose(
        ops.ctc_loss(np.log([[[0.5, 0.5]]]), np.array([[1]])), np.log(2)
    ),
    "im2col": lambda: (
        ops.unfold(IMAGE, (2, 2)).shape == (1, 4, 6)
        and ops.unfold(IMAGE, (2, 2), flatten=False).shape == (1, 4, 2, 3)
    ),
    "linear": lambda: ops.linear(np.ones((2, 3, 4)), np.ones((5, 4))).shape == (2, 3, 5),
    "roi_average_align_2d": lambda: regions(ops.roi_average_align),
    "roi_average_pooling_2d": lambda: regions(ops.roi_average_pool),
    "roi_max_align_2d": lambda: regions(ops.roi_max_align),
    "roi_max_pooling_2d": lambda: regions(ops.roi_max_pool),
    "pad_sequence": lambda: ops.pad_sequence([np.ones(3), np.ones(2)]).shape == (3, 2),
    "depthwise_convolution_2d": lambda: (
        ops.depthwise_conv(MAPS, np.ones((16, 1, 1, 1))).shape == (1, 16, 2, 2)
    ),
    # links
    "Linear": lambda: (
        nn.Linear.init(KEY, 4, 1)(X[None]).shape == (1, 2, 1)
        and nn.Sequential(nn.Flatten(), nn.Linear.init(KEY, 8, 1))(X[None]).shape == (1, 1)
    ),
    "BatchNormalization": lambda: (
        default(nn.BatchNorm.init, "momentum") == 0.1 and default(nn.BatchNorm.init, "eps") == 1e-5
    ),
    "LSTM": lambda: state_is_returned(nn.LSTMCell),
    "StatelessLSTM": lambda: (
        default(nn.LSTMCell.init, "forget_bias") is None
        and (nn.LSTMCell.init(KEY, 3, 2, forget_bias=1.0).bias_ih[2:4] == 1).all()
    ),
    "StatefulGRU": lambda: state_is_returned(nn.GRUCell),
    "StatelessGRU": lambda: default(nn.GRUCell.init, "reset_first") is False,
    "GRU": lambda: default(nn.GRUCell.init, "reset_first") is False,
    "StatefulMGU": lambda: state_is_returned(nn.MGUCell),
    "StatefulPeepholeLSTM": lambda: state_is_returned(nn.PeepholeLSTMCell),
    "StatefulZoneoutLSTM": lambda: state_is_returned(nn.ZoneoutLSTMCell),
    **{
        name: lambda kind=kind: (
            kind.init(KEY, 3, 2, bidirectional=True)(np.ones((4, 3)))[0].shape == (4, 4)
        )
        for name, kind in (
            ("NStepBiGRU", nn.GRU),
            ("NStepBiLSTM", nn.LSTM),
            ("NStepBiRNNTanh", nn.RNN),
        )
    },
    "NStepBiRNNReLU": lambda: default(nn.RNN.init, "nonlinearity") == "tanh",
    "NStepRNNReLU": lambda: default(nn.RNN.init, "nonlinearity") == "tanh",
    **{
        f"{name}Layers": lambda name=name: stride_of(getattr(nn.models, name)) == [1, 2]
        for name in ("ResNet50", "ResNet101", "ResNet152")
    },
    "GoogLeNet": lambda: nn.models.GoogLeNet.init(KEY, 10, width=4).local_norm is False,
    # distributions
    "Bernoulli": lambda: D.Bernoulli(probs=0.5).sample(KEY).dtype.kind == "f",
    "Categorical": lambda: D.Categorical(probs=np.ones(2)).count == 2,
    "OneHotCategorical": lambda: D.OneHotCategorical(probs=np.ones(2)).count == 2,
    "Geometric": lambda: D.Geometric(0.5).mean == 1 and D.Geometric(0.5, start=1).mean == 2,
    "Gamma": lambda: D.Gamma(2.0, 4.0).mean == 0.5,
}
"""What holds here, for each row that says what differs."""


def test_what_a_row_says_to_differ_does():
    differing = {name for _, name, row in ROWS if isinstance(row, dict) and "differs" in row}
    assert differing == DIFFERENCES.keys()
    wrong = [name for name, holds in DIFFERENCES.items() if not holds()]
    assert not wrong
