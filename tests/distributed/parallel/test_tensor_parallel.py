"""A model divided among ranks is the whole model: values, gradients, higher derivatives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, random, tree

KEY = random.key(3)


def close(found, wanted, tolerance=1e-12):
    assert tree.structure(found) == tree.structure(wanted)
    for a, b in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@fdbr.frozen
class Block(nn.Layer):
    table: object
    attention: object
    norm: object
    up: object
    down: object

    @classmethod
    def init(cls, key, vocabulary, width, heads):
        keys = random.split(key, 4)
        return cls(
            nn.Embed.init(keys[0], vocabulary, width, dtype=np.float64),
            nn.MultiHeadAttention.init(
                keys[1], width, heads, dtype=np.float64, bias_init=nn.initializers.normal(0.1)
            ),
            nn.LayerNorm.init(None, width, dtype=np.float64),
            nn.Linear.init(
                keys[2], width, 7, dtype=np.float64, bias_init=nn.initializers.normal(0.1)
            ),
            nn.Linear.init(
                keys[3], 7, width, dtype=np.float64, bias_init=nn.initializers.normal(0.1)
            ),
        )

    def shard(self, comm):
        return tree.replace(
            self,
            table=d.shard(self.table, comm),
            attention=d.shard(self.attention, comm),
            up=d.shard(self.up, comm, split="column"),
            down=d.shard(self.down, comm, split="row"),
        )

    def __call__(self, x):
        x = self.table(x)
        x = x + self.attention(self.norm(x), causal=True)
        return x + self.down(ops.tanh(self.up(self.norm(x))))


def loss(model, x, labels, comm=None):
    out = model(x)
    logits = model.table.attend(out)
    if comm is None:
        return ops.softmax_cross_entropy(logits, labels, ignore_label=0)
    count = model.table.num_embeddings
    return d.tensor_softmax_cross_entropy(logits, labels, comm, classes=count, ignore_label=0)


def data(vocabulary):
    x = np.asarray(random.randint(random.key(1), (2, 5), 0, vocabulary))
    return x, (x * 3 + 1) % vocabulary


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_divided_transformer_has_loss_and_gradients_of_the_whole_one(size):
    vocabulary = 11
    whole = Block.init(KEY, vocabulary, 12, 12)
    x, labels = data(vocabulary)
    value, grads = fdbr.value_and_grad(loss)(whole, x, labels)

    def f(comm):
        own = whole.shard(comm)
        found, derivatives = fdbr.value_and_grad(loss)(own, x, labels, comm)
        return found, derivatives.norm, d.unshard(derivatives), own.up.weight.size

    for found, norm, derivatives, elements in d.run_in_threads(f, size):
        assert abs(found - value) < 1e-12
        close(norm, grads.norm)  # of what all ranks have alike the gradient is whole, not a part
        close(derivatives, grads)
        assert elements <= -(-7 // size) * 12


def test_the_program_of_a_divided_model_does_the_same():
    whole = Block.init(KEY, 6, 4, 2)
    x, labels = data(6)
    grads = fdbr.grad(loss)(whole, x, labels)

    def f(comm):
        step = fdbr.jit(lambda model, x, labels: fdbr.grad(loss)(model, x, labels, comm))
        own = whole.shard(comm)
        step(own, x, labels)
        return d.unshard(step(own, x, labels))

    for derivatives in d.run_in_threads(f, 2):
        close(derivatives, grads)


def test_what_a_program_hands_to_the_parts_is_memory_of_its_own():
    def f(comm):
        @fdbr.jit
        def both(x):
            h = ops.sin(x)
            return h, d.to_shards(h, comm)

        for _ in range(3):
            before, handed = both(np.arange(1000.0))
        return before, handed

    for before, handed in d.run_in_threads(f, 2):
        np.testing.assert_array_equal(before, handed)
        assert not np.shares_memory(before, handed)  # which a program uses again for other steps


@settings(max_examples=15)
@given(size=st.integers(1, 4), whole=st.booleans(), bias=st.booleans(), width=st.integers(4, 7))
def test_a_linear_layer_by_columns_or_rows_is_the_layer(size, whole, bias, width):
    layer = nn.Linear.init(
        KEY, width, width + 1, bias=bias, dtype=np.float64, bias_init=nn.initializers.normal(1.0)
    )
    x = np.asarray(random.normal(KEY, (3, width), "float64"))
    values = [layer(x), *fdbr.grad(lambda layer, x: ops.sum(layer(x) ** 2), (0, 1))(layer, x)]

    def f(comm):
        found = []
        for split in ("column", "row") if whole else ("row",):
            part = d.shard(layer, comm, split=split, whole=True)
            derivatives = fdbr.grad(lambda layer, x: ops.sum(layer(x) ** 2), (0, 1))(part, x)
            found.append([part(x), d.unshard(derivatives[0]), derivatives[1]])
        return found

    for found in d.run_in_threads(f, size):
        for one in found:
            close(one, values, 1e-11)


def pair(up, down, x):
    return ops.sum(ops.sin(down(ops.tanh(up(x)))))


def test_derivatives_of_second_order_forward_mode_and_batches():
    keys = random.split(KEY, 3)
    up = nn.Linear.init(keys[0], 3, 5, dtype=np.float64)
    down = nn.Linear.init(keys[1], 5, 2, dtype=np.float64)
    x = np.asarray(random.normal(keys[2], (3,), "float64"))
    v = np.array([1.0, -2.0, 0.5])

    def of(up, down):
        f = lambda x: pair(up, down, x)
        return (
            fdbr.jvp(f, (x,), (v,)),
            fdbr.hessian(f)(x),
            fdbr.jvp(fdbr.grad(f), (x,), (v,))[1],
            fdbr.grad(lambda x: ops.sum(fdbr.grad(f)(x) ** 2))(x),
            fdbr.vmap(fdbr.grad(f))(np.stack([x, v])),
        )

    wanted = of(up, down)

    def f(comm):
        return of(d.shard(up, comm, split="column"), d.shard(down, comm, split="row"))

    for found in d.run_in_threads(f, 2):
        close(found, wanted)


def test_a_pair_communicates_once_forward_and_once_backward():
    up, down = nn.Linear.init(KEY, 3, 4), nn.Linear.init(KEY, 4, 3)
    x = np.ones((2, 3), np.float32)

    def f(comm):
        calls = []
        send = comm.transport.all_reduce
        comm.transport.all_reduce = lambda *args: (calls.append(args), send(*args))[1]
        ours = d.shard(up, comm, split="column"), d.shard(down, comm, split="row")
        fdbr.grad(lambda up, x: pair(up, ours[1], x), (0, 1))(ours[0], x)
        return len(calls)

    assert d.run_in_threads(f, 2) == [2, 2]


def test_layers_come_from_the_key_of_the_whole_one_and_go_back():
    def f(comm):
        options = {"comm": comm}
        made = (
            d.TensorLinear.init(KEY, 3, 5, split="column", **options),
            d.TensorLinear.init(KEY, 3, 5, split="row", **options),
            d.TensorEmbed.init(KEY, 5, 3, padding_idx=1, **options),
            d.TensorAttention.init(KEY, 8, 4, dropout=0.5, **options),
        )
        return d.unshard(nn.Sequential(*made)).layers

    wanted = (
        nn.Linear.init(KEY, 3, 5),
        nn.Linear.init(KEY, 3, 5),
        nn.Embed.init(KEY, 5, 3, padding_idx=1),
        nn.MultiHeadAttention.init(KEY, 8, 4, dropout=0.5),
    )
    for found in d.run_in_threads(f, 2):
        close(found, wanted, 0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_cross_entropy_of_large_logits_is_finite_and_right(reduction):
    logits = np.array([[1e3, 0.0, -1e3, 5.0, 3.0], [0.0, 2.0, 1e4, 1.0, 0.5]])
    labels = np.array([4, 2])
    wanted = ops.softmax_cross_entropy(logits, labels, reduction=reduction)

    def f(comm):
        own = np.array_split(logits, comm.size, axis=1)[comm.rank]
        return d.tensor_softmax_cross_entropy(own, labels, comm, classes=5, reduction=reduction)

    for found in d.run_in_threads(f, 3):
        close(found, wanted)


def test_padding_and_ignored_integers_are_as_in_a_whole_table():
    table = nn.Embed.init(KEY, 5, 2, padding_idx=1, ignore_label=-1, dtype=np.float64)
    x = np.array([0, 1, -1, 4])
    wanted = table(x), fdbr.grad(lambda t: ops.sum(t(x) ** 2 + t(x)))(table)

    def f(comm):
        own = d.shard(table, comm)
        return own(x), d.unshard(fdbr.grad(lambda t: ops.sum(t(x) ** 2 + t(x)))(own))

    for found in d.run_in_threads(f, 2):
        close(found, wanted)


def test_errors_say_what_to_do():
    linear = nn.Linear.init(KEY, 4, 4)
    comm = d.serial()
    with pytest.raises(ValueError, match="say how a Linear is to be divided"):
        d.shard(linear, comm)
    with pytest.raises(ValueError, match=r"must be 'column' or 'row', got 'rows'"):
        d.shard(linear, comm, split="rows")
    with pytest.raises(TypeError, match="not Sequential; of a model, replace its layers"):
        d.shard(nn.Sequential(linear), comm)
    with pytest.raises(ValueError, match=r"must have shape \(..., 4\), got"):
        d.shard(linear, comm, split="row")(np.ones((2, 3)))
    with pytest.raises(ValueError, match="from 0 to 4"):
        d.TensorEmbed.init(KEY, 5, 2, comm=comm)(np.array([5]))
    with pytest.raises(ValueError, match="2 heads cannot be divided among 3 ranks"):
        d.run_in_threads(lambda comm: d.TensorAttention.init(KEY, 4, 2, comm=comm), 3)
    with pytest.raises(ValueError, match="without them"):
        d.TensorAttention.init(KEY, 4, 2, kdim=3, comm=comm)
    with pytest.raises(ValueError, match=r"logits must have shape \(..., 5\)"):
        d.tensor_softmax_cross_entropy(np.ones((2, 4)), np.ones(2, int), comm, classes=5)
