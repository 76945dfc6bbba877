"""Models run at the size for which they were published, forward and backward.

Of each family those whose layers have shapes of their own: others repeat the same layers more
often, up to 5 GB of parameters and gradients (ViT_H_14), which a test has not.
"""

import numpy as np
import pytest

import fdbr
from fdbr import tree
from fdbr.nn import models
from nn.models.small_models import KEY

PIXELS = 224
TOKENS = 128
IMAGES = ["VGG11", "GoogLeNet", "ResNet50", "MobileNet_V3_Large", "ConvNeXt_Tiny", "ViT_B_16"]


def check(model, run):
    """The gradients of all parameters are finite, and not all of them 0."""
    loss, gradient = fdbr.value_and_grad(lambda model: (run(model) ** 2).mean())(model)
    assert np.isfinite(loss)
    leaves = tree.leaves(tree.trainable(gradient))
    assert leaves
    assert all(np.isfinite(leaf.sum()) for leaf in leaves)
    assert any(np.any(leaf) for leaf in leaves)


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_a_model_of_images_runs_at_its_usual_size(name):
    model = getattr(models, name).init(KEY, 10)
    x = np.random.default_rng(0).standard_normal((1, 3, PIXELS, PIXELS), dtype=np.float32)
    assert model(x).shape == (1, 10)
    check(model, lambda model: model(x))


@pytest.mark.slow
def test_convnext_takes_two_images_at_its_usual_size():
    model = models.ConvNeXt_Tiny.init(KEY, 10, depths=(1, 1, 1, 1))
    x = np.random.default_rng(0).standard_normal((2, 3, PIXELS, PIXELS), dtype=np.float32)
    out = model(x)
    rows = [model(x[i : i + 1])[0] for i in range(2)]
    np.testing.assert_allclose(out, rows, rtol=1e-3, atol=1e-4 * np.abs(out).max())
    check(model, lambda model: model(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GPT2", "BERT"])
def test_a_model_of_texts_runs_at_its_usual_size(name):
    model = getattr(models, name).init(KEY, vocab_size=500)
    tokens = np.random.default_rng(0).integers(0, 500, (1, TOKENS))

    def run(model):
        out = model(tokens)
        return out if name == "GPT2" else out[0]

    assert run(model).shape[:2] == (1, TOKENS)
    check(model, run)
