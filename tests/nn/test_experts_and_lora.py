"""Mixtures of experts, and adaptation by matrices of low rank."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.testing import assert_allclose

KEY = random.key(7)
X = random.normal(random.key(8), (3, 4, 6), "float64")


def mixture(**settings):
    return nn.MixtureOfExperts.init(KEY, 6, 5, 4, **{"k": 2, "dtype": "float64"} | settings)


def one_by_one(layer, x, slots=None):
    """Token by token, as the papers have it."""
    out, taken = np.zeros_like(x), [0] * len(layer.experts)
    logits = x @ layer.router.weight.T
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen = np.argsort(-shares, axis=-1)[:, : layer.k]
    for rank in range(layer.k):
        for t, token in enumerate(x):
            expert = chosen[t, rank]
            if slots is None or taken[expert] < slots:
                taken[expert] += 1
                weight = shares[t, expert] / shares[t, chosen[t]].sum()
                out[t] += weight * layer.experts[expert](token)
    return out


def test_each_token_is_computed_by_its_experts_alone():
    layer, tokens = mixture(), np.reshape(X, (12, 6))
    assert_allclose(layer(X), one_by_one(layer, tokens).reshape(X.shape))
    jitted = fdbr.jit(lambda layer, x: layer(x))
    assert_allclose(jitted(layer, X), layer(X))
    assert_allclose(fdbr.vmap(layer)(X), layer(X))
    seen = []
    watching = tree.replace(layer, experts=tuple(map(Watched, layer.experts, [seen] * 4)))
    watching(X)
    assert sum(seen) == 2 * 12  # and no more


@fdbr.frozen
class Watched(nn.Layer):
    layer: nn.Layer
    seen: object = fdbr.static(eq=False)

    def __call__(self, x):
        self.seen.append(len(x))
        return self.layer(x)


@pytest.mark.parametrize(("factor", "slots"), [(0.5, 3), (1.0, 6), (4.0, 12)])
def test_slots_go_to_first_choices_first(factor, slots):
    layer, tokens = mixture(capacity_factor=factor), np.reshape(X, (12, 6))
    assert_allclose(layer(tokens), one_by_one(layer, tokens, slots))
    jitted = fdbr.jit(lambda layer, x: layer(x))
    assert_allclose(jitted(layer, tokens), layer(tokens))


def test_the_losses_of_an_undecided_router():
    layer = mixture()
    layer = tree.replace(layer, router=nn.Linear(np.zeros((4, 6)), None))
    _, losses = layer(X, need_losses=True)
    assert_allclose(losses, {"load_balancing": 1.0, "router_z": np.log(4.0) ** 2})
    (_, losses), _ = mixture().train(X, need_losses=True)
    assert 1 < losses["load_balancing"] < 4


def test_no_token_is_no_error():
    for layer in (mixture(), mixture(capacity_factor=1.0)):
        assert layer(np.zeros((0, 6))).shape == (0, 6)


def test_what_does_not_fit_experts_is_refused():
    with pytest.raises(ValueError, match="k=5 experts a token, but there are 4"):
        mixture(k=5)
    with pytest.raises(ValueError, match="capacity_factor must be a positive number"):
        mixture(capacity_factor=-1)
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., 6\)[\s\S]*in model Mixture"):
        mixture()(X[..., :5])


# --- adaptation ---------------------------------------------------------------------


def model():
    return nn.TransformerEncoder.init(
        KEY, 2, 6, 2, 5, dropout=0.1, activation="gelu", norm=True, dtype="float64"
    )


def test_an_adapted_model_gives_at_first_what_it_gave_and_trains_the_small_matrices_alone():
    plain = model()
    adapted = nn.lora(plain, random.key(1), 2, alpha=4)
    assert_allclose(adapted(X, causal=True), plain(X, causal=True))
    derivatives = fdbr.grad(lambda m: (m(X) ** 3).sum())(adapted)
    assert tree.leaves(derivatives.base) == []
    paths = set(derivatives.adapters)
    assert paths == {
        f"layers[{i}].{name}"
        for i in (0, 1)
        for name in (
            "self_attn.in_proj_weight",
            "self_attn.out_proj.weight",
            "linear1.weight",
            "linear2.weight",
        )
    }
    assert all(np.any(slope.lora_B) for slope in derivatives.adapters.values())


def test_merged_it_is_a_plain_model_that_gives_the_same():
    plain = model()
    adapted = nn.lora(plain, random.key(1), 2, where=lambda path: "layers[1].linear" in path)
    assert sorted(adapted.adapters) == ["layers[1].linear1.weight", "layers[1].linear2.weight"]
    step = fdbr.grad(lambda m: (m(X) ** 3).sum())(adapted)
    adapted = tree.map(lambda x, g: x if g is None else x - 0.1 * g, adapted, step)
    merged = nn.merge_lora(adapted)
    assert tree.structure(merged) == tree.structure(plain)
    assert_allclose(merged(X), adapted(X), rtol=1e-10)
    assert abs(merged(X) - plain(X)).max() > 1e-6
    assert tree.leaves(merged.layers[0])[0] is tree.leaves(plain.layers[0])[0]
    assert_allclose(nn.merge_lora({"a": adapted})["a"](X), merged(X))


def test_training_hands_statistics_on_and_leaves_out_by_the_key():
    net = nn.Sequential(nn.BatchNorm.init(None, 6), ops.tanh, nn.Linear.init(KEY, 6, 3))
    adapted = nn.lora(net, random.key(1), 1, dropout=0.5)
    x = X[0].astype("float32")
    _, successor = adapted.train(x, key=random.key(2))
    assert tree.structure(successor) == tree.structure(adapted)
    assert np.any(successor.base[0].running_mean)
    assert type(successor.base[2]) is nn.Linear
    assert successor.layers[0].running_mean is successor.base[0].running_mean
    with pytest.raises(TypeError, match="LoRA: train draws random numbers"):
        adapted.train(x)


def test_the_weights_that_a_layers_class_names_are_adapted():
    sizes = {"vocab_size": 5, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 2}
    adapted = nn.lora(nn.models.GPT2.init(KEY, **sizes), random.key(1), 1)
    names = ("attn.c_attn", "attn.c_proj", "c_fc", "c_proj")
    assert set(adapted.adapters) == {f"h[0].{name}.weight" for name in names}


def test_what_cannot_be_adapted_is_refused():
    with pytest.raises(ValueError, match=r"no weight of Sequential is chosen, .* none"):
        nn.lora(nn.Sequential(ops.tanh), KEY, 1)
    with pytest.raises(ValueError, match=r"chosen by where; its matrices are .*linear1\.weight"):
        nn.lora(model(), KEY, 1, where=lambda path: False)
    with pytest.raises(ValueError, match="rank must be at least 1"):
        nn.lora(model(), KEY, 0)
    with pytest.raises(TypeError, match=r"merge_lora: nothing in .* was adapted"):
        nn.merge_lora(model())
