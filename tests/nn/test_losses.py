"""Layers that are losses, drawing from many classes, and trees."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, train
from fdbr.testing import assert_allclose

KEY = random.key(3)


def test_walkers_draws_have_the_frequencies_of_the_weights():
    weights = np.array([1.0, 0.0, 5.0, 2.0, 0.5])
    sampler = nn.WalkerAlias.init(weights)
    draws = sampler.sample(KEY, (40_000,))
    assert draws.dtype == np.int64
    np.testing.assert_array_equal(draws, sampler.sample(KEY, 40_000))
    shares = np.bincount(draws, minlength=5) / draws.size
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.01)
    assert shares[1] == 0
    # The tables are exact, whatever the draws.
    count, rest = len(weights), 1 - sampler.threshold
    exact = (sampler.threshold + np.bincount(sampler.alias, rest, count)) / count
    assert_allclose(exact, weights / weights.sum())


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [np.inf, 1.0], [[1.0]]])
def test_weights_that_are_no_frequencies_are_refused(weights):
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.WalkerAlias\.init: weights must"):
        nn.WalkerAlias.init(np.array(weights))


def test_huffmans_tree_is_the_shortest():
    counts = {0: 8, 1: 5, 2: 6, 3: 4}
    assert nn.huffman_tree(counts) == nn.huffman_tree(list(counts.values())) == ((3, 1), (2, 0))
    paths, signs = nn.tree_paths(nn.huffman_tree([1, 1, 2, 4, 8]))
    assert (signs != 0).sum(1).tolist() == [4, 4, 3, 2, 1]
    assert paths.max() == 3


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ((0, (1, 3)), "it lacks 2"),
        ((0, (1, 1)), "the leaf 1 is there twice"),
        ((0, (1, -2)), "the leaf -2 is negative"),
        ((0, (1,)), "a pair of two children, got one of 1"),
        (0, "it has no inner node"),
    ],
)
def test_a_tree_that_is_not_whole_is_refused(tree, words):
    with pytest.raises(ValueError, match=rf"^fdbr\.nn\.\w+(\.init)?: .*{words}"):
        nn.BinaryHierarchicalSoftmax.init(KEY, 2, tree)


def test_the_leaves_of_a_tree_share_the_probability():
    layer = nn.BinaryHierarchicalSoftmax.init(KEY, 3, nn.huffman_tree([4, 3, 3, 2, 1]))
    x = np.random.default_rng(0).normal(size=(1, 3))
    losses = layer(np.repeat(x, 5, axis=0), np.arange(5), reduction="none")
    assert_allclose(np.exp(-losses).sum(), 1.0, rtol=1e-6)


def test_classes_are_drawn_from_the_key_or_given():
    layer = nn.NegativeSampling.init(KEY, 2, [3, 2, 1], 4, weight_init=nn.initializers.normal(1.0))
    x, labels = np.ones((2, 2), "f4"), np.array([0, 2])
    samples = layer.sampler.sample(KEY, (2, 4))
    assert layer(x, labels, key=KEY) == layer(x, labels, samples=samples)
    assert layer.train(x, labels, key=KEY) == (layer(x, labels, key=KEY), layer)
    with pytest.raises(TypeError, match=r"^fdbr\.nn\.NegativeSampling: key must be a key"):
        layer(x, labels)
    gradient = fdbr.grad(lambda layer: layer(x, labels, key=KEY))(layer)
    assert gradient.weight.shape == (3, 2)
    assert gradient.sampler.threshold is None


def test_a_label_outside_of_the_classes_names_the_layer_in_its_model():
    @fdbr.frozen
    class Words:
        loss: nn.NegativeSampling

        def __call__(self, x, labels):
            return self.loss(x, labels, key=KEY)

    model = Words(nn.NegativeSampling.init(KEY, 2, [3, 2, 1], 4))
    words = r"labels from 0 to 3 for 3 classes(.|\n)*in model Words\.loss \(NegativeSampling\)"
    with pytest.raises(ValueError, match=words):
        model(np.ones((2, 2)), np.array([0, 3]))


def test_a_classifier_gives_its_loss_and_metrics_and_passes_successors_on():
    first, last = random.split(KEY)
    net = nn.Sequential(
        nn.Linear.init(first, 2, 4), nn.BatchNorm.init(KEY, 4), nn.Linear.init(last, 4, 3)
    )
    model = nn.Classifier(net, metrics={"right": ops.accuracy, "all": lambda y, t: y})
    x, labels = np.random.default_rng(0).normal(size=(5, 2)).astype("f4"), np.arange(5) % 3
    loss, metrics = model(x, labels)
    assert_allclose(loss, ops.softmax_cross_entropy(net(x), labels))
    assert list(metrics) == ["right", "all"]
    assert_allclose(metrics["all"], net(x))
    (loss, _), successor = model.train(x, labels)
    trained, after = net.train(x)
    assert_allclose(loss, ops.softmax_cross_entropy(trained, labels))
    assert_allclose(successor.predictor.layers[1].running_mean, after.layers[1].running_mean)
    assert nn.Classifier(lambda x: x, metrics={}).train(x, labels % 2)[0][1] == {}
    with pytest.raises(TypeError, match=r"^fdbr\.nn\.Classifier: loss must be a function, not str"):
        nn.Classifier(net, "mse")


def test_a_chain_takes_positions_arrays_and_sequences_alike():
    rng = np.random.default_rng(4)
    layer = nn.CRF1d.init(KEY, 3, cost_init=nn.initializers.normal(1.0), dtype="float64")
    x, y, sizes = rng.normal(size=(4, 3, 3)), rng.integers(0, 3, (4, 3)), [2, 4, 3]
    expected = layer(x, y, lengths=np.array(sizes))
    lists = [[each[:n, i] for i, n in enumerate(sizes)] for each in (x, y)]
    assert_allclose(layer(*lists, transpose=True), expected)
    order = np.argsort(sizes)[::-1]
    lengths = np.sort(sizes)[::-1]
    positions = [[each[t, order[lengths > t]] for t in range(4)] for each in (x, y)]
    assert_allclose(layer(*positions), expected)
    value, labels = layer.argmax(x, lengths=np.array(sizes))
    score, paths = layer.argmax(lists[0], transpose=True)
    assert_allclose(score, value)
    for i, n in enumerate(sizes):
        np.testing.assert_array_equal(paths[i], labels[:n, i])
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.CRF1d: a list of sequences must hold some"):
        layer([x[:0, 0]], [y[:0, 0]], transpose=True)


def test_layers_that_are_losses_are_saved_and_loaded(tmp_path):
    for layer in (
        nn.NegativeSampling.init(KEY, 2, [3, 2, 1], 4, weight_init=nn.initializers.normal(1.0)),
        nn.BinaryHierarchicalSoftmax.init(KEY, 2, ((0, 1), 2)),
        nn.CRF1d.init(KEY, 3),
    ):
        path = tmp_path / "layer.safetensors"
        train.save(path, layer)
        assert_allclose(train.load(path, like=layer), layer)
