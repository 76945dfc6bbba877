"""Recurrent layers over padded arrays with lengths, compared with lists of sequences."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops, tree
from fdbr.testing import assert_allclose
from fdbr.tree import frozen

KEY = fdbr.random.key(0)
NETWORKS = {
    "LSTM": nn.LSTM.init(KEY, 3, 4, dtype="float64"),
    "LSTM both": nn.LSTM.init(KEY, 3, 4, 2, bidirectional=True, dtype="float64"),
    "LSTM with projection": nn.LSTM.init(KEY, 3, 4, 2, proj_size=2, dtype="float64"),
    "GRU": nn.GRU.init(KEY, 3, 4, 2, bidirectional=True, dtype="float64"),
    "GRU without bias": nn.GRU.init(KEY, 3, 4, bias=False, dtype="float64"),
    "RNN": nn.RNN.init(KEY, 3, 4, 2, bidirectional=True, dtype="float64"),
    # Its states grow tenfold at each step.
    "growing RNN": nn.RNN.init(
        KEY,
        3,
        4,
        nonlinearity="relu",
        recurrent_init=lambda key, shape, dtype: 10 * np.eye(*shape, dtype=dtype),
        dtype="float64",
    ),
}


def as_array(outputs, time):
    return ops.pad_sequence(outputs, length=time)


def sequences_of(lengths, time, fill=0.0):
    rng = np.random.default_rng(len(lengths))
    x = rng.normal(size=(time, len(lengths), 3))
    xs = [x[:n, i] for i, n in enumerate(lengths)]
    for i, n in enumerate(lengths):
        x[n:, i] = fill
    return x, xs


@pytest.mark.parametrize("name", NETWORKS)
@given(st.data())
@settings(max_examples=8)
def test_padded_sequences_give_the_results_of_a_list(name, data):
    network = NETWORKS[name]
    time = data.draw(st.integers(1, 6))
    lengths = data.draw(st.lists(st.integers(1, time), min_size=1, max_size=4))
    x, xs = sequences_of(lengths, time, fill=data.draw(st.sampled_from([0.0, 1e3, np.nan])))
    state = tree.map(lambda zeros: zeros + 0.3, network.initial_state(len(lengths)))

    def listed(network, state, xs):
        outputs, ends = network(xs, state)
        return as_array(outputs, time), ends

    def of_array(network, state, x, lengths):
        return network(x, state, lengths=lengths)

    expected, pull = fdbr.vjp(listed, network, state, xs)
    found, pull_array = fdbr.vjp(
        lambda *args: of_array(*args, np.array(lengths)), network, state, x
    )
    tree.map(functools.partial(assert_allclose, rtol=1e-10, atol=1e-12), found, expected)
    ct = tree.map(lambda v: np.cos(np.arange(v.size)).reshape(v.shape), expected)
    by_list, by_array = pull(ct), pull_array(ct)
    tree.map(functools.partial(assert_allclose, rtol=1e-9, atol=1e-11), by_array[:2], by_list[:2])
    assert_allclose(by_array[2], as_array(by_list[2], time), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["LSTM both", "GRU", "growing RNN"])
def test_one_trace_serves_all_lengths(name):
    network = NETWORKS[name]
    traces = []

    @fdbr.jit
    def loss(network, x, lengths):
        traces.append(None)
        out, state = network(x, lengths=lengths)
        return (out**2).sum() + sum((part**2).sum() for part in tree.leaves(state))

    gradient = fdbr.jit(fdbr.value_and_grad(loss))
    for lengths in ([5, 2, 1], [3, 3, 5], [1, 1, 1], [4, 5, 2]):
        x, xs = sequences_of(lengths, 5)

        def of_list(network, xs=xs):
            out, state = network(xs)
            return (ops.concat(out) ** 2).sum() + sum((p**2).sum() for p in tree.leaves(state))

        value, grads = gradient(network, x, np.array(lengths))
        wanted, wanted_grads = fdbr.value_and_grad(of_list)(network)
        assert_allclose(value, wanted, rtol=1e-10)
        tree.map(functools.partial(assert_allclose, rtol=1e-9, atol=1e-11), grads, wanted_grads)
    assert len(traces) <= 2
    with pytest.raises(ValueError, match=r"lengths must be from 1 to 5, .* got 0 to 5"):
        gradient(network, x, np.array([0, 5, 2]))


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_axes_of_a_batch_and_its_order_are_free(cls):
    network = cls.init(KEY, 3, 4, batch_first=True)
    plain = tree.replace(network, batch_first=False)
    lengths = np.array([[1, 4], [3, 2], [4, 4]])
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 3)).astype("float32")
    out, state = network(x, lengths=lengths)
    flat, flat_state = plain(x.reshape(6, 4, 3).swapaxes(0, 1), lengths=lengths.ravel())
    np.testing.assert_array_equal(out, flat.swapaxes(0, 1).reshape(out.shape))
    tree.map(lambda a, b: np.testing.assert_array_equal(a, b.reshape(a.shape)), state, flat_state)
    one, _ = plain(x[0, 1], lengths=4)
    assert_allclose(one, plain(x[0, 1])[0], rtol=1e-6)
    alone = fdbr.vmap(lambda x, n: plain(x, lengths=n)[0])(x[:, 1], lengths[:, 1])
    assert_allclose(alone, out[:, 1], rtol=1e-5, atol=1e-6)


def test_cells_with_steps_of_their_own_take_lengths():
    @frozen
    class Doubled(nn.GRUCell):
        def advance(self, state, inputs):
            h, out = super().advance(state, inputs)
            return h, 2 * out

    network = NETWORKS["GRU without bias"]
    cell = Doubled(**{n: getattr(network.cells[0], n) for n in ("weight_ih", "weight_hh")})
    x, xs = sequences_of([4, 1, 3], 4)
    out, h = tree.replace(network, cells=(cell,))(x, lengths=[4, 1, 3])
    outputs, h_of_list = network(xs)
    assert_allclose(out, 2 * as_array(outputs, 4), rtol=1e-10)
    assert_allclose(h, h_of_list, rtol=1e-10)


@pytest.mark.parametrize("function", ["n_step_lstm", "n_step_gru", "n_step_rnn"])
def test_functions_take_padded_sequences(function):
    gates = {"n_step_lstm": 4, "n_step_gru": 3, "n_step_rnn": 1}[function]
    rng = np.random.default_rng(0)
    ws = [(rng.normal(size=(gates * 2, n)), rng.normal(size=(gates * 2, 2))) for n in (3, 3, 4, 4)]
    states = (None,) * (2 if function == "n_step_lstm" else 1)
    x, xs = sequences_of([2, 5, 1], 5, fill=np.inf)
    run = functools.partial(getattr(ops, function), bidirectional=True)
    *ends, out = run(*states, ws, None, x, lengths=np.array([2, 5, 1]))
    *wanted, outputs = run(*states, ws, None, xs)
    assert_allclose(out, as_array(outputs, 5), rtol=1e-10)
    for end, other in zip(ends, wanted, strict=True):
        assert_allclose(end, other, rtol=1e-10)


def test_lengths_that_do_not_fit_are_refused():
    network, x = NETWORKS["GRU"], np.zeros((5, 2, 3))
    for lengths in ([0, 3], [6, 1], [-1, 2]):
        with pytest.raises(ValueError, match=r"nn\.GRU: lengths must be from 1 to 5"):
            network(x, lengths=lengths)
    for lengths in ([1, 2, 3], [1.0, 2.0], 4, [[1], [2]]):
        with pytest.raises(ValueError, match=r"lengths must be integers of shape \(2\)"):
            network(x, lengths=lengths)
    with pytest.raises(TypeError, match="lengths are for a padded array"):
        network([x[:, 0]], lengths=[5])


def test_dropout_between_layers_leaves_padding_at_0():
    network = nn.LSTM.init(KEY, 3, 4, 2, dropout=0.5)
    x = np.ones((5, 2, 3), "float32")
    (out, _), _ = network.train(x, lengths=np.array([2, 5]), key=KEY)
    assert (out[2:, 0] == 0).all()
    assert (out[:2, 0] != 0).any()
