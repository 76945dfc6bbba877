"""Layers of attention: masks, caches, and what does not fit."""

import tracemalloc

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.ops.nn.attention import pieces as attention_pieces
from fdbr.testing import assert_allclose

KEY = random.key(3)


def normal(*shape, dtype="float64"):
    return random.normal(random.fold_in(KEY, len(shape)), shape, dtype)


# --- tables -------------------------------------------------------------------------


def test_the_row_of_padding_is_zeros_and_is_not_trained():
    layer = nn.Embed.init(KEY, 3, 2, padding_idx=-1, dtype="float64")
    np.testing.assert_array_equal(layer(np.array([2])), [[0, 0]])
    slope = fdbr.grad(lambda layer: layer(np.array([0, 2, 2])).sum())(layer)
    np.testing.assert_array_equal(slope.weight, [[1, 1], [0, 0], [0, 0]])


def test_a_label_that_is_ignored_gives_zeros_wherever_it_lies():
    layer = nn.Embed.init(KEY, 3, 2, ignore_label=-1)
    np.testing.assert_array_equal(layer(np.array([[-1, 1]]))[0], [[0, 0], layer.weight[1]])
    with pytest.raises(ValueError, match=r"indices from -2 .* 0 … 2\n  in model Embed"):
        layer(np.array([-1, -2]))


def test_a_table_attends_by_its_rows():
    layer, x = nn.Embed.init(KEY, 3, 2), normal(5, 2, dtype="float32")
    assert_allclose(layer.attend(x), x @ layer.weight.T)


@pytest.mark.parametrize("kind", [nn.PositionalEmbedding, nn.SinusoidalEmbedding])
def test_positions_count_from_the_offset_and_end_with_the_table(kind):
    layer, x = kind.init(KEY, 6, 4), np.zeros((2, 3, 4), "float32")
    assert_allclose(layer(x, offset=2)[1], layer(np.zeros((6, 4), "float32"))[2:5])
    jitted = fdbr.jit(lambda offset: layer(x, offset=offset))
    assert_allclose(jitted(np.array(2)), layer(x, offset=2))
    with pytest.raises(ValueError, match=r"places 4 … 6 .* table of 6 places"):
        layer(x, offset=4)
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., length, 4\)"):
        layer(x[..., :3])


# --- attention ----------------------------------------------------------------------


def test_masks_of_both_kinds_say_the_same():
    layer, x = nn.MultiHeadAttention.init(KEY, 4, 2, dtype="float64"), normal(2, 3, 4)
    hidden = np.array([[False, False, True], [False, True, True]])
    seen = np.broadcast_to(~hidden[:, None, None], (2, 2, 3, 3))
    expected = layer(x, key_padding_mask=hidden)
    assert_allclose(layer(x, mask=seen), expected)
    assert_allclose(layer(x, mask=np.where(seen, 0.0, -np.inf)), expected)
    assert_allclose(layer(x, attn_mask=~seen.reshape(4, 3, 3)), expected)
    with_causal = layer(x, mask=seen & np.tri(3, dtype=bool))
    assert_allclose(layer(x, key_padding_mask=hidden, causal=True), with_causal)
    both = layer(x, key_padding_mask=hidden, attn_mask=np.triu(np.ones((3, 3)) * -np.inf, 1))
    assert_allclose(both, with_causal)


def test_who_sees_nothing_gets_the_bias_and_finite_gradients():
    layer, x = nn.MultiHeadAttention.init(KEY, 4, 2, dtype="float64"), normal(1, 3, 4)
    hidden = np.array([[True, True, True]])
    value, slope = fdbr.value_and_grad(
        lambda layer, x: (layer(x, key_padding_mask=hidden) ** 2).sum(), argnums=(0, 1)
    )(layer, x)
    assert value == 0
    assert all(np.isfinite(leaf).all() for leaf in tree.leaves(slope))


def test_weights_are_left_out_by_a_key_in_training_alone():
    layer = nn.MultiHeadAttention.init(KEY, 4, 2, dropout=0.5)
    x = normal(2, 5, 4, dtype="float32")
    first, again = (layer.train(x, key=random.key(i))[0] for i in (1, 1))
    other, _ = layer.train(x, key=random.key(2))
    np.testing.assert_array_equal(first, again)
    assert abs(first - other).max() > 0.01
    assert abs(layer(x) - first).max() > 0.01
    with pytest.raises(TypeError, match=r"MultiHeadAttention: train draws .* got no key"):
        layer.train(x)


# --- caches -------------------------------------------------------------------------

WAYS = {
    "multi-head": (lambda: nn.MultiHeadAttention.init(KEY, 4, 2, dtype="float64"), 2),
    "grouped": (lambda: nn.GroupedQueryAttention.init(KEY, 4, 2, 1, dtype="float64"), 1),
    "window": (lambda: nn.GroupedQueryAttention.init(KEY, 4, 2, window=2, dtype="float64"), 2),
    "block": (lambda: nn.DecoderBlock.init(KEY, 4, 2, 1, 3, dtype="float64"), 1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jitted", [False, True])
def test_attention_with_a_cache_is_attention_without(way, jitted):
    make, heads = WAYS[way]
    layer, x = make(), normal(3, 6, 4)
    cache = nn.KeyValueCache.init(3, 7, heads, 2, dtype="float64")
    step = lambda cache, x: layer(x, cache=cache)
    step = fdbr.jit(step) if jitted else step
    parts = []
    for start, stop in ((0, 3), (3, 4), (4, 5), (5, 6)):
        out, cache = step(cache, x[:, start:stop])
        parts.append(out)
    assert_allclose(np.concatenate(parts, axis=1), layer(x, causal=True), rtol=1e-10, atol=1e-12)
    assert int(cache.position) == 6


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_decoder_with_a_cache_is_a_decoder_without(norm_first, jitted):
    decoder = nn.TransformerDecoder.init(
        KEY, 2, 4, 2, 6, norm=True, norm_first=norm_first, dropout=0.0, dtype="float64"
    )
    x, memory = normal(3, 6, 4), normal(3, 5, 4)
    padding = np.array([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    masks = {"memory_key_padding_mask": padding}
    step = lambda cache, x: decoder(x, cache=cache, **masks)
    step = fdbr.jit(step) if jitted else step
    cache, parts = decoder.cache(memory, 7), []
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        out, cache = step(cache, x[:, start:stop])
        parts.append(out)
    whole = decoder(x, memory, causal=True, **masks)
    assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-10, atol=1e-12)
    assert [int(one.own.position) for one in cache] == [6, 6]


def test_a_cache_of_a_decoder_stands_in_the_place_of_the_memory():
    layer = nn.TransformerDecoderLayer.init(KEY, 4, 2, 6)
    x = normal(3, 2, 4).astype("float32")
    cache = layer.cache(x, 2)
    for call in (
        lambda: layer(x),
        lambda: layer(x, x, cache=cache),
        lambda: layer(x, cache=cache, tgt_mask=np.zeros((2, 2), bool)),
    ):
        with pytest.raises(ValueError, match="give a memory, or a cache"):
            call()
    _, full = layer(x, cache=cache)
    with pytest.raises(ValueError, match="do not fit behind the 2"):
        layer(x, cache=full)
    with pytest.raises(ValueError, match=r"cache: memory must have shape \(\*batch, places, 4\)"):
        layer.cache(x[..., :3], 2)


def test_a_mask_beside_a_cache_has_a_column_for_each_place():
    layer, x = nn.MultiHeadAttention.init(KEY, 4, 2, dtype="float64"), normal(3, 4, 4)
    seen = np.array([[True] * 4, [False, True, True, True], [False, False, True, True]])
    cache = nn.KeyValueCache.init(3, 5, 2, 2, dtype="float64")
    mask = np.pad(seen, ((0, 0), (0, 1)))[:, None, None]
    for step in (lambda x, cache: layer(x, cache=cache, mask=mask),) * 2:
        first, next_cache = step(x[:, :3], cache)
        last, _ = fdbr.jit(step)(x[:, 3:], next_cache)
        expected = layer(x, causal=True, key_padding_mask=~seen)
        assert_allclose(np.concatenate([first, last], axis=1), expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match=r"mask must have a column for each of the 5 places"):
        layer(x[:, :3], cache=cache, mask=seen[:, None, None])


def test_a_cache_that_is_full_says_so():
    layer, x = nn.MultiHeadAttention.init(KEY, 4, 2), normal(1, 3, 4, dtype="float32")
    cache = nn.KeyValueCache.init(1, 4, 2, 2)
    _, cache = layer(x, cache=cache)
    with pytest.raises(ValueError, match=r"3 more places do not fit behind the 3 .* of 4"):
        layer(x, cache=cache)
    with pytest.raises(ValueError, match="cannot take in"):
        layer(x, cache=nn.KeyValueCache.init(2, 4, 2, 2))
    with pytest.raises(ValueError, match="a cache is for self-attention"):
        layer(x, x, cache=cache)


# --- what does not fit --------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.MultiHeadAttention.init(KEY, 5, 2), ValueError, "num_heads=2 must divide"),
        (lambda: nn.MultiHeadAttention.init(KEY, 4, 0), ValueError, "num_heads must be at least"),
        (lambda: nn.MultiHeadAttention.init(KEY, 4, 2, dropout=1), ValueError, r"in \[0, 1\)"),
        (lambda: nn.GroupedQueryAttention.init(KEY, 6, 3, 2), ValueError, "num_kv_heads=2 must"),
        (lambda: nn.GroupedQueryAttention.init(KEY, 3, 1), ValueError, "3 features of heads"),
        (lambda: nn.Embed.init(KEY, 3, 2, padding_idx=3), ValueError, "padding_idx 3 is no row"),
        (lambda: nn.SinusoidalEmbedding.init(None, 3, 3), ValueError, "width must be even"),
        (
            lambda: nn.TransformerEncoderLayer.init(KEY, 4, 2, activation="elo"),
            ValueError,
            "activation must be a function, 'relu'",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((2, 3), bool)}, r"mask must broadcast .* got bool\[2,3\]"),
        ({"attn_mask": np.ones((3, 3, 3), bool)}, r"\(3, 3\) or \(4, 3, 3\), got bool\[3,3,3\]"),
        ({"key_padding_mask": np.ones((2, 4), bool)}, r"key_padding_mask must have shape \(2, 3\)"),
        (
            {"key": normal(2, 3, 3)},
            r"key must have shape \(\.\.\., length, 4\), got float64\[2,3,3",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_the_layers_path(options, message):
    layer = nn.TransformerEncoderLayer.init(KEY, 4, 2, 3, dtype="float64").self_attn
    with pytest.raises(ValueError, match=message) as caught:
        layer(normal(2, 3, 4), **options)
    assert "in model MultiHeadAttention" in str(caught.value)


def test_the_path_of_attention_inside_a_stack_is_told():
    stack = nn.TransformerEncoder.init(KEY, 2, 4, 2, 3)
    with pytest.raises(ValueError, match=r"in model TransformerEncoder\.layers\[0\]\.self_attn"):
        stack(ops.ones((2, 3, 5)))


# --- by blocks ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"local_window_size": (5, 40), "enable_gqa": True},
        {"dropout_p": 0.3, "dropout_key": KEY},
    ],
)
def test_attention_by_blocks_is_attention_at_once(options, monkeypatch):
    monkeypatch.setattr(attention_pieces, "_QUERIES", 16)
    monkeypatch.setattr(attention_pieces, "_KEYS", 32)
    q, k, v = normal(2, 4, 50, 8), normal(2, 2, 70, 8), normal(2, 2, 70, 3)
    if not options.get("enable_gqa"):
        k, v = np.repeat(k, 2, 1), np.repeat(v, 2, 1)

    def run(size):
        call = lambda q, k, v: ops.scaled_dot_product_attention(
            q, k, v, mask=MASK, block_size=size, **options
        )
        out, pullback = fdbr.vjp(call, q, k, v)
        return out, pullback(np.cos(out))

    assert_allclose(run(24), run(None), rtol=1e-10, atol=1e-11)


MASK = np.random.default_rng(0).random((2, 1, 50, 70)) < 0.3
MASK[0, 0, 7] = False


@pytest.mark.slow
def test_long_sequences_take_memory_in_proportion_to_their_length():
    def peak(length):
        x = normal(1, 1, length, 4, dtype="float32")
        tracemalloc.start()
        call = lambda x: (ops.scaled_dot_product_attention(x, x, x, causal=True) ** 2).sum()
        slope = fdbr.grad(call)(x)
        assert np.isfinite(slope).all()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(8192) < 2.5 * peak(4096) < 2.5 * 2**24  # the weights alone are 2**26 bytes


def test_numbers_of_minus_infinity_hide_keys_by_blocks_too():
    q, k, v = normal(2, 7, 4), normal(2, 9, 4), normal(2, 9, 3)
    draws = np.random.default_rng(1)
    mask = np.where(draws.random((2, 7, 9)) < 0.5, -np.inf, draws.normal(size=(2, 7, 9)))
    mask[0, 3], mask[1, :, :4] = -np.inf, -np.inf

    def run(size):
        call = lambda *args: ops.scaled_dot_product_attention(*args, block_size=size)
        out, pullback = fdbr.vjp(call, q, k, v, mask)
        return out, pullback(np.cos(out))

    found = run(3)
    assert all(np.isfinite(x).all() for x in tree.leaves(found))
    assert_allclose(found, run(None), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[0][0, 3], np.zeros(3))
