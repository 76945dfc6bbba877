"""Cases of recurrent cells, and of layers of them."""

from fdbr import nn
from nn.layer_cases import KEY, case, numbers

for _name, _count, _options in (
    ("RNNCell", 1, {}),
    ("RNNCell relu", 1, {"nonlinearity": "relu", "bias": False}),
    ("LSTMCell", 2, {}),
    ("LSTMCell with a projection", 2, {"proj_size": 1}),
    ("GRUCell", 1, {}),
    ("GRUCell reset first", 1, {"reset_first": True}),
    ("MGUCell", 1, {}),
    ("PeepholeLSTMCell", 2, {}),
    ("PeepholeLSTMCell diagonal", 2, {"diagonal": True}),
    ("ZoneoutLSTMCell", 2, {}),
):

    def _make(dtype, name=_name, options=_options):
        return getattr(nn, name.split()[0]).init(KEY, 3, 2, dtype=dtype, **options)

    def _inputs(dtype, count=_count, options=_options):
        widths = (options.get("proj_size", 2), 2)[:count]
        parts = [numbers((2, width), dtype, seed) for seed, width in enumerate(widths)]
        return tuple(parts) if count > 1 else parts[0], numbers((2, 3), dtype)

    case(_name, _make, _inputs, key=_name.startswith("Zoneout"))


def _ragged(dtype):
    return ([numbers((n, 2), dtype, n) for n in (1, 2)],)


for _name, _options, _given in (
    ("RNN", {}, [(3, 2, 2)]),
    ("RNN of sequences", {"nonlinearity": "relu"}, _ragged),
    ("LSTM", {"num_layers": 2, "batch_first": True}, [(1, 2, 2)]),
    ("LSTM of sequences", {"bidirectional": True, "proj_size": 1}, _ragged),
    ("GRU", {"bidirectional": True}, [(2, 1, 2)]),
    ("GRU of sequences", {"num_layers": 2, "bias": False}, _ragged),
):

    def _network(dtype, name=_name, options=_options):
        size = 1 + ("proj_size" in options)
        return getattr(nn, name.split()[0]).init(KEY, 2, size, dtype=dtype, **options)

    case(_name, _network, _given)


def _children(dtype):
    parts = [numbers((2, 2), dtype, seed) for seed in range(4)]
    return (parts[0], parts[1]), (parts[2], parts[3]), numbers((2, 3), dtype)


for _kind in (nn.ChildSumTreeLSTM, nn.NaryTreeLSTM):
    case(_kind.__name__, lambda d, kind=_kind: kind.init(KEY, 3, 2, dtype=d), _children)
case(
    "NaryTreeLSTM leaf",
    lambda dtype: nn.NaryTreeLSTM.init(KEY, 3, 2, 1, bias=False, dtype=dtype),
    [(2, 3)],
)
