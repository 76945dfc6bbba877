"""Recurrent cells over time, and layers of them over sequences of different lengths."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, random, tree
from fdbr.ops.nn.recurrent.stages import run_steps
from fdbr.testing import assert_allclose
from nn.layer_cases import KEY, numbers

CELLS = ["RNNCell", "LSTMCell", "GRUCell", "MGUCell", "PeepholeLSTMCell", "ZoneoutLSTMCell"]
LENGTHS = (2, 4, 1, 4)


def cell_of(name="LSTMCell", **options):
    return getattr(nn, name).init(KEY, 3, 2, dtype="float64", **options)


def network(name="LSTM", **options):
    return getattr(nn, name).init(KEY, 3, 2, dtype="float64", **options)


def ragged(lengths=LENGTHS, dtype="float64"):
    return [numbers((n, 3), dtype, seed=i) for i, n in enumerate(lengths)]


# --- cells over time ----------------------------------------------------------------


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_the_cell_step_by_step(name, reverse):
    cell, xs = cell_of(name), numbers((4, 5, 3), "float64")
    state, outs = cell.initial_state(5), []
    for x in xs[::-1] if reverse else xs:
        state, y = cell(state, x)
        outs.append(y)
    outs = np.stack(outs[::-1] if reverse else outs)
    for first in (None, cell.initial_state(5)):
        assert_allclose(nn.scan(cell, first, xs, reverse=reverse), (state, outs), rtol=1e-12)
    assert_allclose(fdbr.scan(cell, cell.initial_state(5), xs, reverse=reverse), (state, outs))


def test_a_scan_takes_any_function_and_trees_of_inputs():
    def add(state, x):
        return state + x["a"], state * x["b"]

    xs = {"a": np.arange(3.0), "b": np.ones(3)}
    state, outs = nn.scan(add, 1.0, xs)
    assert state == 4
    np.testing.assert_array_equal(outs, [1, 1, 2])


def test_a_jitted_scan_is_one_instruction_whatever_its_length():
    cell = cell_of()
    sizes = set()
    for length in (5, 50):
        run = fdbr.jit(lambda cell, xs: nn.scan(cell, None, xs)[1])
        xs = numbers((length, 2, 3), "float64")
        assert_allclose(run(cell, xs), nn.scan(cell, None, xs)[1], rtol=1e-10)
        sizes.add(len(str(run.programs()[0]).splitlines()))
    assert len(sizes) == 1


@pytest.mark.parametrize("unroll", [2, True])
@pytest.mark.parametrize("checkpoint", [None, 2, True])
def test_unrolled_and_checkpointed_scans_have_the_same_gradients(unroll, checkpoint):
    cell, xs = cell_of("GRUCell"), numbers((5, 2, 3), "float64")

    def loss(cell, **options):
        return (nn.scan(cell, None, xs, **options)[1] ** 2).sum()

    found = fdbr.grad(lambda cell: loss(cell, unroll=unroll, checkpoint=checkpoint))(cell)
    assert_allclose(found, fdbr.grad(loss)(cell), rtol=1e-10)


def test_truncated_backpropagation_sees_what_lies_no_further_back_than_the_cut():
    """A state through `stop_gradient`: gradients go k2 steps back, values all the way."""
    cell, xs, k2 = cell_of(), numbers((6, 2, 3), "float64"), 2

    def last(xs, cut):
        state, _ = nn.scan(cell, None, xs[:-k2])
        if cut:
            state = fdbr.stop_gradient(state)
        return (nn.scan(cell, state, xs[-k2:])[1][-1] ** 2).sum()

    assert last(xs, True) == last(xs, False)
    whole, cut = (fdbr.grad(lambda xs, c=c: last(xs, c))(xs) for c in (False, True))
    assert (abs(whole).max(axis=(1, 2)) > 0).all()
    assert not cut[:-k2].any()
    assert_allclose(cut[-k2:], whole[-k2:], rtol=1e-12)


def test_truncated_gradients_by_parameters_are_those_of_the_last_part_alone():
    lstm, xs = network(num_layers=2), numbers((6, 2, 3), "float64")
    _, state = lstm(xs[:4])

    def part(lstm, state):
        return (lstm(xs[4:], state)[0] ** 2).sum()

    def cut(lstm):
        return part(lstm, fdbr.stop_gradient(lstm(xs[:4])[1]))

    assert_allclose(fdbr.grad(cut)(lstm), fdbr.grad(part)(lstm, state), rtol=1e-12)


def test_a_state_that_is_handed_on_gives_what_the_whole_sequence_gives():
    for name in ("RNN", "LSTM", "GRU"):
        layer, xs = network(name, num_layers=2), numbers((6, 2, 3), "float64")
        first, state = layer(xs[:2])
        second, state = layer(xs[2:], state)
        assert_allclose((np.concatenate([first, second]), state), layer(xs), rtol=1e-12)


# --- by hand ------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def given(count=1):
    """An input, and the states of some children or steps before."""
    parts = [numbers((4, 2), "float64", seed) for seed in range(2 * count)]
    return numbers((4, 3), "float64"), list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("diagonal", [False, True])
def test_peepholes_are_those_of_the_paper_and_of_chainer(diagonal):
    cell, (x, [(h, c)]) = cell_of("PeepholeLSTMCell", diagonal=diagonal), given()
    sums = x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh
    i, f, g, o = np.split(sums, 4, axis=1)
    seen = (lambda w, c: w * c) if diagonal else (lambda w, c: c @ w.T)
    i, f = sigmoid(i + seen(cell.weight_ci, c)), sigmoid(f + seen(cell.weight_cf, c))
    c = f * c + i * np.tanh(g)
    h = sigmoid(o + seen(cell.weight_co, c)) * np.tanh(c)
    assert_allclose(cell(given()[1][0], x), ((h, c), h), rtol=1e-12)


def test_the_sum_of_children_is_that_of_the_paper():
    """Tai et al., equations 2 to 8, with ``u`` called ``a``; gates are stacked as a, i, o, f."""
    cell = nn.ChildSumTreeLSTM.init(KEY, 3, 2, dtype="float64")
    x, states = given(3)
    wa, wi, wo, wf = np.split(cell.weight_ih, 4)
    ba, bi, bo, bf = np.split(cell.bias, 4)
    ua, ui, uo = np.split(cell.weight_hh, 3)
    total = sum(h for h, _ in states)
    i, o = (sigmoid(x @ w.T + total @ u.T + b) for w, u, b in ((wi, ui, bi), (wo, uo, bo)))
    c = i * np.tanh(x @ wa.T + total @ ua.T + ba)
    for h, memory in states:
        c = c + sigmoid(x @ wf.T + h @ cell.weight_hf.T + bf) * memory
    assert_allclose(cell(*states, x), (o * np.tanh(c), c), rtol=1e-12)
    assert_allclose(cell(*states[::-1], x), (o * np.tanh(c), c), rtol=1e-12)


def test_children_in_order_have_weights_of_their_own():
    """Tai et al., equations 9 to 14, with an input's weights for each forget gate."""
    cell = nn.NaryTreeLSTM.init(KEY, 3, 2, dtype="float64")
    x, states = given(2)
    sums = x @ cell.weight_ih.T + cell.bias
    for (h, _), weight in zip(states, cell.weight_hh, strict=True):
        sums = sums + h @ weight.T
    a, i, o, *forget = np.split(sums, 5, axis=1)
    c = sigmoid(i) * np.tanh(a)
    c = c + sum(sigmoid(f) * memory for f, (_, memory) in zip(forget, states, strict=True))
    assert_allclose(cell(*states, x), (sigmoid(o) * np.tanh(c), c), rtol=1e-12)


# --- in training --------------------------------------------------------------------


def test_zoneout_keeps_elements_of_the_state_by_chance():
    cell = nn.ZoneoutLSTMCell.init(KEY, 3, 200, c_rate=0.25, h_rate=0.5, dtype="float64")
    x = numbers((5, 3), "float64")
    h, c = (numbers((5, 200), "float64", seed) for seed in (1, 2))
    ((new_h, new_c), y), successor = cell.train((h, c), x, key=KEY)
    (plain_h, plain_c), _ = cell((h, c), x)
    assert successor is cell
    assert y is new_h
    for old, new, plain, rate in ((h, new_h, plain_h, 0.5), (c, new_c, plain_c, 0.25)):
        stays = new == old
        np.testing.assert_array_equal(new[~stays], plain[~stays])
        assert stays.mean() == pytest.approx(rate, abs=0.06)
    with pytest.raises(TypeError, match="training needs a key"):
        cell.train((h, c), x)


def test_each_step_of_a_scan_in_training_has_its_own_key():
    cell = nn.ZoneoutLSTMCell.init(KEY, 3, 50, dtype="float64")
    xs = np.zeros((4, 1, 3))
    (state, outs), successor = nn.scan(cell, None, xs, train=True, key=KEY)
    again = nn.scan(cell, None, xs, train=True, key=KEY)
    assert_allclose(again[0], (state, outs), rtol=0)
    assert tree.structure(successor) == tree.structure(cell)
    stays = outs[1:] == outs[:-1]
    assert 0.3 < stays.mean() < 0.7
    assert (stays[0] != stays[1]).any()


@fdbr.frozen
class Deep(nn.Layer):
    """Two cells, with a normalisation between them that updates its statistics."""

    first: nn.LSTMCell
    norm: nn.BatchNorm
    second: nn.ZoneoutLSTMCell

    def initial_state(self, batch_shape):
        return self.first.initial_state(batch_shape), self.second.initial_state(batch_shape)

    def __call__(self, state, x):
        one, y = self.first(state[0], x)
        two, y = self.second(state[1], self.norm(y))
        return (one, two), y

    def train(self, state, x, *, key=None):
        (one, y), first = self.first.train(state[0], x)
        y, norm = self.norm.train(y)
        (two, y), second = self.second.train(state[1], y, key=key)
        return ((one, two), y), Deep(first, norm, second)


def test_a_cell_of_the_users_is_gone_over_as_well_and_its_successors_carried_on():
    deep = Deep(
        cell_of(),
        nn.BatchNorm.init(None, 2, dtype="float64"),
        nn.ZoneoutLSTMCell.init(KEY, 2, 2, dtype="float64"),
    )
    xs = numbers((3, 4, 3), "float64")
    state, outs = nn.scan(deep, None, xs)
    own = deep.initial_state(4)
    for x, y in zip(xs, outs, strict=True):
        own, expected = deep(own, x)
        assert_allclose(y, expected, rtol=1e-12)
    assert_allclose(state, own, rtol=1e-12)
    run = lambda deep: nn.scan(deep, None, xs, train=True, key=KEY)
    (_, outs), successor = run(deep)
    own, follower = deep.initial_state(4), deep
    for x, key, y in zip(xs, random.split(KEY, 3), outs, strict=True):
        (own, expected), follower = follower.train(own, x, key=key)
        assert_allclose(y, expected, rtol=1e-12)
    assert_allclose(successor, follower, rtol=1e-12)
    assert (successor.norm.running_mean != deep.norm.running_mean).all()
    assert_allclose(fdbr.jit(run)(deep)[1], follower, rtol=1e-10)


def test_dropout_between_layers_leaves_the_last_outputs_whole():
    layer = nn.GRU.init(KEY, 3, 40, 2, dropout=0.5, dtype="float64")
    for x in (numbers((4, 2, 3), "float64"), ragged()):
        (y, h), successor = layer.train(x, key=KEY)
        assert successor is layer
        assert_allclose(layer.train(x, key=KEY)[0], (y, h), rtol=0)
        other = layer.train(x, key=random.key(7))[0][0]
        assert all((a != b).any() for a, b in zip(tree.leaves(y), tree.leaves(other), strict=True))
        assert all(part.all() for part in tree.leaves(y))
        assert_allclose(h[0], layer(x)[1][0], rtol=1e-12)  # before the dropout
        with pytest.raises(TypeError, match=r"nn.GRU: training with dropout needs key="):
            layer.train(x)
    assert_allclose(nn.GRU.init(KEY, 3, 2, dropout=0.5).train(x)[0][1].shape, (1, 4, 2))


# --- sequences of different lengths -------------------------------------------------


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_each_sequence_goes_its_own_way(name):
    layer, xs = network(name, num_layers=2, bidirectional=True), ragged()
    state = tree.map(lambda leaf: numbers(leaf.shape, "float64"), layer.initial_state(len(xs)))
    ys, ends = layer(xs, state)
    for i, x in enumerate(xs):
        own = tree.map(lambda leaf, i=i: leaf[:, i : i + 1], state)
        y, end = layer(x[:, None], own)
        assert_allclose(ys[i], y[:, 0], rtol=1e-12)
        assert_allclose(tree.map(lambda leaf, i=i: leaf[:, i : i + 1], ends), end, rtol=1e-12)


def test_gradients_of_sequences_are_those_of_each_alone_under_every_transformation():
    layer, xs = network(bidirectional=True), ragged()

    def loss(layer, xs):
        return sum((i + 1) * (y**2).sum() for i, y in enumerate(layer(xs)[0]))

    def one_by_one(layer, xs):
        return sum((i + 1) * (layer(x)[0] ** 2).sum() for i, x in enumerate(xs))

    expected = fdbr.grad(one_by_one, (0, 1))(layer, xs)
    gradient = fdbr.grad(loss, (0, 1))
    assert_allclose(gradient(layer, xs), expected, rtol=1e-10)
    assert_allclose(fdbr.jit(gradient)(layer, xs), expected, rtol=1e-9)
    saving = fdbr.grad(lambda *args: fdbr.checkpoint(loss)(*args), (0, 1))
    assert_allclose(saving(layer, xs), expected, rtol=1e-10)
    slope = fdbr.jvp(lambda xs: loss(layer, xs), (xs,), (xs,))[1]
    assert slope == pytest.approx(sum((g * x).sum() for g, x in zip(expected[1], xs, strict=True)))
    batch = [np.stack([x, 2 * x]) for x in xs]
    rows = fdbr.vmap(fdbr.grad(loss, 1), (None, 0))(layer, batch)
    assert_allclose([row[0] for row in rows], expected[1], rtol=1e-10)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_no_padding_is_computed(name, monkeypatch):
    """Of each product the rows are those of the elements that there are, there and back."""
    layer, xs = network(name), ragged((100, 1, 1, 2))
    by_input, by_state, matmul = [], [], np.matmul

    def note(event):
        if "matmul" in event.op or "affine" in event.op:
            by_input.append(event.operands[0].shape[0])

    def multiply(x, y, **options):
        by_state.append(len(x))
        return matmul(x, y, **options)

    monkeypatch.setattr(run_steps, "host", run_steps.definition)
    monkeypatch.setattr(np, "matmul", multiply)
    with fdbr.debug.hook(note):
        _, pullback = fdbr.vjp(lambda layer: layer(xs), layer)
    assert sum(by_input) == sum(by_state) == 104
    pullback((*fdbr.tree.map(np.ones_like, layer(xs)),))
    assert sum(by_state) == 104 + 104 + 104  # and those of the call for the cotangents


def test_long_arrays_are_gone_over_as_short_ones_are():
    """They are one instruction of a jitted function, whatever their length."""
    layer, xs = network(bidirectional=True), numbers((300, 1, 3), "float64")
    there, back = layer.cells
    ends, outs = nn.scan(there, None, xs)
    others, more = nn.scan(back, None, xs, reverse=True)
    expected = np.concatenate([outs, more], axis=-1), tree.map(lambda *p: np.stack(p), ends, others)
    assert_allclose(layer(xs), expected, rtol=1e-12)
    run = fdbr.jit(lambda layer, xs: layer(xs))
    assert_allclose(run(layer, xs), expected, rtol=1e-9)
    assert len(str(run.programs()[0]).splitlines()) < 100


@pytest.mark.parametrize("size", [4, 80])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_jitted_networks_are_the_same_whether_their_steps_are_small_or_large(name, size):
    layer = getattr(nn, name).init(KEY, 3, size, bidirectional=True, dtype="float64")
    x = numbers((3, 50, 3), "float64")

    def gradient(layer, x):
        return fdbr.value_and_grad(lambda layer: (layer(x)[0] ** 2).sum())(layer)

    run = fdbr.jit(gradient)
    assert_allclose(run(layer, x), gradient(layer, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_jitted_gradient_of_sequences_is_a_program_of_one_length_whatever_theirs(name):
    layer, sizes = network(name, bidirectional=True), set()
    for lengths in ((4, 2, 1), (40, 30, 1)):
        run = fdbr.jit(fdbr.grad(lambda layer, xs: sum((y**2).sum() for y in layer(xs)[0])))
        run(layer, ragged(lengths))
        sizes.add(str(run.programs()[0]).count(", steps=Steps("))
    assert sizes == {4}  # there and back, of two directions


def test_the_state_has_the_dtype_of_what_is_computed():
    """Of float32 weights and float64 inputs that is float64, from the first step on."""
    cell, xs = nn.LSTMCell.init(KEY, 3, 2), np.ones((300, 2, 3))
    layer = nn.GRU.init(KEY, 3, 2)
    for found in (
        nn.scan(cell, None, xs),
        nn.scan(cell, cell.initial_state(2), xs),
        layer(xs),
        layer(xs[:3], layer.initial_state(2)),
        layer([xs[:3, 0], xs[:2, 1]], layer.initial_state(2)),
    ):
        assert {leaf.dtype for leaf in tree.leaves(found)} == {np.dtype("float64")}


def test_a_sequence_of_one_axis_is_an_example_of_its_own():
    layer = network()
    y, (h, c) = layer(ragged()[1])
    assert y.shape == (4, 2)
    assert h.shape == c.shape == (1, 2)
    several = nn.GRU.init(KEY, 3, 2, batch_first=True)(np.ones((5, 2, 4, 3), "float32"))
    assert several[0].shape == (5, 2, 4, 2)
    assert several[1].shape == (1, 5, 2, 2)


# --- trees --------------------------------------------------------------------------


def test_the_children_of_a_sum_have_no_order_and_those_of_n_have():
    x = numbers((3,), "float64")
    for cell, same in ((nn.ChildSumTreeLSTM, True), (nn.NaryTreeLSTM, False)):
        cell = cell.init(KEY, 3, 2, dtype="float64")
        one, two = cell(x), cell(-x)
        there, back = cell(one, two, None), cell(two, one, None)
        assert np.allclose(there[0], back[0]) == same


def test_a_child_that_is_not_there_has_a_state_of_zeros():
    for kind in (nn.ChildSumTreeLSTM, nn.NaryTreeLSTM):
        cell, x = kind.init(KEY, 3, 2, dtype="float64"), numbers((3,), "float64")
        zeros = cell.initial_state()
        assert_allclose(cell(zeros, zeros, x), cell(x), rtol=1e-12)
        assert_allclose(cell(zeros, zeros, np.zeros(3)), cell(zeros, zeros, None), rtol=1e-12)


def test_parameters_are_pytorchs_by_default_and_chainers_if_asked():
    cell = nn.LSTMCell.init(KEY, 30, 100)
    assert abs(cell.weight_ih).max() <= 0.1
    assert cell.bias_hh.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.1)
    zeros = nn.initializers.zeros()
    cell = nn.LSTMCell.init(KEY, 30, 100, forget_bias=1, bias_init=zeros)
    assert (cell.bias_ih[100:200] == 1).all()
    assert cell.bias_ih.sum() == 100
    assert not cell.bias_hh.any()
    assert not nn.GRU.init(KEY, 3, 2, bias=False).cells[0].weights.bias_ih


def test_layers_work_on_every_array_module(xp, to_numpy):
    layer, xs = network(num_layers=2, bidirectional=True), ragged()
    moved = tree.map(xp.asarray, layer)
    ys, ends = moved([xp.asarray(x) for x in xs])
    expected = layer(xs)
    for found, own in zip(tree.leaves((ys, ends)), tree.leaves(expected), strict=True):
        assert type(found) is type(xp.asarray(xs[0]))
        assert_allclose(to_numpy(found), own, rtol=1e-10)
    whole = to_numpy(moved(xp.asarray(np.stack(xs[1::2])))[0])
    assert_allclose(whole, layer(np.stack(xs[1::2]))[0], rtol=1e-10)


# --- cells with steps of their own ----------------------------------------------------


def test_a_network_of_cells_with_peepholes_goes_through_their_steps():
    cells = [nn.PeepholeLSTMCell.init(key, 3, 4) for key in random.split(random.key(0), 2)]
    network = nn.LSTM(tuple(cells), bidirectional=True)
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype("float32")
    y, (h, c) = network(x)
    (h0, c0), front = nn.scan(cells[0], None, x)
    (h1, c1), back = nn.scan(cells[1], None, x, reverse=True)
    np.testing.assert_array_equal(y, np.concatenate([front, back], axis=-1))
    np.testing.assert_array_equal(h, np.stack([h0, h1]))
    np.testing.assert_array_equal(c, np.stack([c0, c1]))
    with pytest.raises(TypeError, match="PeepholeLSTMCell has steps of its own"):
        network([x[:, 0], x[:2, 1]])


def test_a_network_of_cells_with_a_training_of_their_own_says_how_they_are_trained():
    network = nn.LSTM((nn.ZoneoutLSTMCell.init(random.key(0), 3, 4),))
    x = np.zeros((5, 2, 3), "float32")
    assert network(x)[0].shape == (5, 2, 4)
    with pytest.raises(TypeError, match="a training of its own"):
        network.train(x, key=random.key(1))


@pytest.mark.parametrize("cls", [nn.RNNCell, nn.GRUCell, nn.LSTMCell, nn.MGUCell])
def test_a_cell_without_a_state_starts_from_zeros(cls):
    cell, x = cls.init(fdbr.random.key(0), 3, 2), np.ones((5, 3), "float32")
    state, out = cell(x)
    wanted, same = cell(cell.initial_state(5), x)
    fdbr.tree.map(np.testing.assert_array_equal, (state, out), (wanted, same))
    ((_, trained), _) = cell.train(x)
    np.testing.assert_array_equal(trained, out)
