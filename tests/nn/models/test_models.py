"""Models: how they are made, called, trained and looked into."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, train, tree
from fdbr.nn import models
from fdbr.nn.models.building import PART, Spread
from fdbr.testing import assert_allclose
from nn.models.small_models import IMAGES, KEY, images, made

COUNTS = {
    "VGG11": 132863336,
    "VGG13": 133047848,
    "VGG16": 138357544,
    "VGG19": 143667240,
    "GoogLeNet": 13004888,  # of these 6,379,984 in the auxiliary heads
    "ResNet18": 11689512,
    "ResNet34": 21797672,
    "ResNet50": 25557032,
    "ResNet101": 44549160,
    "ResNet152": 60192808,
    "ResNeXt50_32x4d": 25028904,
    "ResNeXt101_32x8d": 88791336,
    "ResNeXt101_64x4d": 83455272,
    "Wide_ResNet50_2": 68883240,
    "Wide_ResNet101_2": 126886696,
    "SEResNet50": 28088024,
    "SEResNet101": 49326872,
    "SEResNet152": 66821848,
    "SEResNeXt50": 27559896,
    "SEResNeXt101": 48955416,
    "MobileNetV2": 3504872,
    "MobileNet_V3_Large": 5483032,
    "MobileNet_V3_Small": 2542856,
    "ConvNeXt_Tiny": 28589128,
    "ConvNeXt_Small": 50223688,
    "ConvNeXt_Base": 88591464,
    "ConvNeXt_Large": 197767336,
    "ViT_B_16": 86567656,
    "ViT_B_32": 88224232,
    "ViT_L_16": 304326632,
    "ViT_L_32": 306535400,
    "ViT_H_14": 632045800,
    "GPT2": 124439808,
    "BERT": 109482240,
}
BASES = {"VGG", "ResNet", "MobileNetV3", "ConvNeXt", "ViT", "ImageNetwork", "Network"}
small = pytest.mark.parametrize("name", IMAGES)


def free(key, shape, dtype):
    """Weights that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


@pytest.mark.parametrize("name", COUNTS)
def test_models_have_as_many_parameters_as_published(name):
    model = getattr(models, name).init(KEY, weight_init=free)
    assert tree.size(tree.trainable(model)) == COUNTS[name]


def test_every_model_is_counted():
    kinds = {name for name in models.__all__ if is_model(getattr(models, name))}
    assert kinds - BASES == set(COUNTS)


def is_model(value):
    return isinstance(value, type) and issubclass(value, models.Network)


def test_batch_normalisation_is_an_option_of_vgg():
    model = models.VGG16.init(KEY, weight_init=free, batch_norm=True)
    assert tree.size(tree.trainable(model)) == 138365992


def test_weights_follow_from_the_key_and_are_spread_as_documented():
    one, same, other = (models.ResNet18.init(random.key(i), 5, width=16) for i in (0, 0, 1))
    assert one == same
    assert one != other
    first, second = one.layer3[1].conv1.weight, one.layer3[1].conv2.weight
    assert first.std() == pytest.approx(np.sqrt(2 / (64 * 9)), rel=0.02)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.03


def test_large_weights_are_drawn_in_parts_that_differ():
    weight = Spread(0.01)(KEY, (2, PART))
    assert weight.std() == pytest.approx(0.01, rel=0.01)
    assert not weight.flags.writeable
    begin, later = weight
    assert (begin != later).mean() > 0.99


@small
def test_one_image_is_a_batch_of_one(name):
    model, x = made(name), images(name)
    assert_allclose(model(x[1]), model(x[1:2])[0], rtol=1e-9)


@small
def test_training_gives_a_successor_of_the_same_form(name):
    model, x = made(name, "float32"), images(name, "float32")
    out, successor = model.train(x)
    assert tree.structure(successor) == tree.structure(model)
    assert tree.map(np.shape, successor) == tree.map(np.shape, model)
    assert {leaf.dtype for leaf in tree.leaves(out)} == {np.dtype("float32")}
    assert str(model).startswith(type(model).__name__)


@pytest.mark.parametrize("name", ["SEResNet50", "ViT_B_16"])
def test_models_are_jitted_and_mapped_over_images(name):
    model, x = made(name), images(name)

    def loss(model, x):
        return (model(x) ** 2).sum()

    gradient = fdbr.grad(loss)(model, x[0])
    assert_allclose(fdbr.jit(fdbr.grad(loss))(model, x[0]), gradient, rtol=1e-7, atol=1e-8)
    each = fdbr.vmap(fdbr.grad(loss), in_axes=(None, 0))(model, x[:2])
    assert_allclose(tree.map(lambda leaf: leaf[0], each), gradient, rtol=1e-7, atol=1e-8)


def test_dropout_and_stochastic_depth_draw_by_the_key():
    x = images("ConvNeXt_Tiny")
    for model in (
        made("ConvNeXt_Tiny", stochastic_depth_prob=0.5),
        models.ViT_B_16.init(
            KEY,
            5,
            image_size=37,
            patch_size=37,
            hidden_dim=4,
            mlp_dim=4,
            num_layers=1,
            num_heads=2,
            dropout=0.5,
            attention_dropout=0.5,
            dtype="float64",
        ),
    ):
        first, again, other = (model.train(x, key=random.key(seed))[0] for seed in (0, 0, 1))
        assert_allclose(first, again)
        assert abs(first - other).max() > 1e-6
        with pytest.raises(TypeError, match=r"got no key(.|\n)*in model (ConvNeXt_Tiny|ViT_B_16)"):
            model.train(x)


def test_googlenet_gives_what_its_auxiliary_heads_say_in_training_alone():
    x = images("GoogLeNet")
    out, _ = made("GoogLeNet").train(x)
    assert isinstance(out, models.GoogLeNetOutputs)
    assert [part.shape for part in out] == [(3, 5)] * 3
    alone, _ = made("GoogLeNet").train(x[0])
    assert alone.aux_logits1.shape == (5,)
    without = made("GoogLeNet", aux_logits=False)
    logits, _ = without.train(x)
    assert_allclose(logits, out.logits, rtol=1e-9)


def test_chainers_googlenet_has_local_normalisation_and_windows_of_five():
    model = models.GoogLeNet.init(KEY, 5, width=8, chainer=True, dtype="float64")
    assert model.inception3a.branch3[1].conv.weight.shape[2:] == (5, 5)
    assert model.conv1.bn is None
    x = random.normal(KEY, (2, 3, 224, 224), "float32")
    out, _ = tree.map(np.float32, model).train(x, key=KEY)
    assert out.aux_logits2.shape == (2, 5)


# --- what is inside -----------------------------------------------------------------


def test_outputs_of_layers_are_told_by_their_paths():
    model, x = made("ResNet50"), images("ResNet50")
    names = ["conv1", "layer2[1].bn2", "layer2.1.bn2", "layer2.layers[1]", "avgpool", "fc"]
    found = model.extract(x, names)
    assert list(found) == names
    assert_allclose(found["conv1"], model.conv1(x))
    assert_allclose(found["layer2.1.bn2"], found["layer2[1].bn2"])
    assert_allclose(model.fc(found["avgpool"][:, :, 0, 0]), found["fc"])
    assert_allclose(found["fc"], model(x))
    block = model.layer2[1]
    before = model.layer2[0](model.layer1(model.maxpool(ops.relu(model.bn1(found["conv1"])))))
    assert_allclose(found["layer2.layers[1]"], block(before))
    one = model.extract(x[0], layers=["layer1"])["layer1"]
    assert_allclose(one, model.extract(x, ["layer1"])["layer1"][0], rtol=1e-9)


def test_nothing_is_computed_after_the_last_layer_that_is_wanted():
    model, x = made("VGG11"), images("VGG11")
    broken = tree.replace(model, classifier=nn.Sequential(nn.Lambda(lambda x: 1 / 0)))
    features = broken.extract(x, ["features[2]", "avgpool"])
    assert features["avgpool"].shape == (3, 32, 7, 7)


def test_layers_inside_of_texts_models_are_found():
    model = made("GPT2")
    found = model.extract(np.array([[1, 2]]), ["h[1].ln_2", "h[0]"])
    assert found["h[1].ln_2"].shape == (1, 2, 12)


def test_layers_have_chainers_names_too():
    model, x = made("VGG11"), images("VGG11")
    found = model.extract(x, ["conv3_2", "pool5", "fc7", "fc8"])
    assert_allclose(found["conv3_2"], model.features[:10](x), rtol=1e-9)
    assert found["conv3_2"].min() == 0  # rectified, as in Chainer
    assert_allclose(found["pool5"], model.features(x), rtol=1e-9)
    assert_allclose(found["fc8"], model(x), rtol=1e-9)
    assert made("VGG11 with batch_norm").extract(np.ones((3, 33, 33)), ["conv1_1"])
    assert made("ResNet50").extract(images("ResNet50"), ["res2"])["res2"].shape[1] == 32
    assert made("GoogLeNet").extract(images("GoogLeNet"), ["inception_4a"])
    found = made("MobileNetV2").extract(images("MobileNetV2"), ["expanded_conv_5", "conv1"])
    assert {name: out.shape[1] for name, out in found.items()} == {
        "expanded_conv_5": 8,
        "conv1": 1280,
    }


def test_features_are_differentiable():
    model, x = made("MobileNet_V3_Small"), images("MobileNet_V3_Small")
    slope = fdbr.grad(lambda x: (model.extract(x, ["features[2]"])["features[2]"] ** 2).sum())(x)
    assert abs(slope).max() > 0


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        (
            ["layer9"],
            ValueError,
            "where 'layer9' should be, there are conv1, bn1",
        ),
        (["layer1[7]"], ValueError, "where '7' should be, there are 0"),
        (["layer1[0].se"], ValueError, "where 'se' should be, there are conv1"),
        ("fc", TypeError, "layers must be a list of names of layers, got str"),
        ([3], TypeError, "a layer's name must be text, got int"),
    ],
)
def test_layers_that_are_not_there_are_told(layers, error, message):
    with pytest.raises(error, match=message.replace("[", r"\[")):
        made("ResNet50").extract(images("ResNet50"), layers)


def test_layers_that_are_not_called_are_told():
    with pytest.raises(ValueError, match="does not call aux1 in inference"):
        made("GoogLeNet").extract(images("GoogLeNet"), ["aux1", "fc"])


# --- files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ResNet50", "GoogLeNet", "ViT_B_16", "GPT2", "BERT"])
def test_models_are_saved_and_loaded(name, tmp_path):
    model = made(name, "float32")
    train.save(tmp_path / "model", model)
    assert train.load(tmp_path / "model", like=model) == model
    nn.save_torch_state(model, tmp_path / "model.safetensors")
    assert nn.load_torch_state(model, tmp_path / "model.safetensors") == model


def test_names_in_older_files_are_known():
    vit = made("ViT_B_16")
    state = nn.save_torch_state(vit)
    assert "encoder.layers.encoder_layer_1.mlp.3.weight" in state
    older = {
        name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): value
        for name, value in state.items()
    }
    assert nn.load_torch_state(vit, older) == vit
    bert = made("BERT")
    state = nn.save_torch_state(bert)
    assert "encoder.layer.1.attention.self.query.weight" in state
    older = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma"): value
        for name, value in state.items()
    }
    older["bert.embeddings.position_ids"] = np.arange(8)[None]
    assert nn.load_torch_state(bert, older) == bert


CHAINERS = {  # of `ResNet50Layers`, `VGG16Layers` and `GoogLeNet`
    "ResNet50": {"conv1/b", "res2/a/conv4/W", "res2/a/bn4/avg_var", "res3/b1/bn3/gamma", "fc6/W"},
    "VGG16": {"conv1_1/W", "conv5_3/b", "fc6/W", "fc8/b"},
    "GoogLeNet": {"conv2_reduce/b", "conv2/W", "inc3a/proj5/W", "inc5b/projp/b", "loss2_fc1/W"},
    "MobileNetV2": {  # of ChainerCV
        *("conv/conv/conv/W", "conv/bn/gamma", "expanded_conv/depthwise/conv/conv/W"),
        *("expanded_conv/project/bn/avg_var", "expanded_conv_1/expand/conv/conv/W"),
        *("expanded_conv_16/project/conv/conv/W", "conv1/bn/beta", "logits_conv/conv/b"),
    },
}


@pytest.mark.parametrize("name", CHAINERS)
def test_models_read_chainers_files(name, tmp_path):
    settings = {"width": 2, "hidden": 3} if name == "VGG16" else {"width": 8, "chainer": True}
    if name == "MobileNetV2":
        settings = {"width": 0.25, "chainer": True}
    model = getattr(models, name).init(KEY, 5, **settings)
    nn.save_chainer_npz(model, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        assert set(file.files) >= CHAINERS[name]
    assert nn.load_chainer_npz(tree.map(np.zeros_like, model), tmp_path / "model.npz") == model


def test_gpt2_loads_from_both_of_its_files():
    gpt2 = made("GPT2")
    state = nn.save_torch_state(gpt2)
    assert state["transformer.h.1.attn.c_attn.weight"].shape == (12, 36)
    assert (state["lm_head.weight"] == state["transformer.wte.weight"]).all()
    plain = {
        name.removeprefix("transformer."): value
        for name, value in state.items()
        if name != "lm_head.weight"
    }
    plain |= {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 8, 8))) for i in range(2)}
    assert nn.load_torch_state(gpt2, plain) == gpt2
    del plain["h.0.ln_1.weight"]
    with pytest.raises(ValueError, match=r"missing(.|\n)*transformer.h.0.ln_1.weight"):
        nn.load_torch_state(gpt2, plain)


@pytest.mark.parametrize(
    ("name", "size"), [("ResNet18", 1), ("VGG11", 32), ("GoogLeNet", 15), ("ConvNeXt_Tiny", 32)]
)
def test_images_may_be_as_small_as_with_torchvision(name, size):
    assert made(name)(np.ones((1, 3, size, size))).shape == (1, 5)


# --- what does not fit --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("ResNet50", (2, 1, 32, 32), r"channels(.|\n)*in model ResNet50\.conv1 \(Conv\)"),
        ("VGG11", (2, 3, 16, 16), r"in model VGG11\.features\.layers\[20\] \(MaxPool2d\)"),
        ("ConvNeXt_Tiny", (2, 3, 16, 16), r"in model ConvNeXt_Tiny\.features\.layers\[6\]"),
        ("ResNet50", (3, 32), r"x must be images of shape \(N, C, H, W\), .* got float64\[3,32\]"),
        ("ViT_B_16", (2, 3, 32, 32), "for images of 24 by 24 pixels, got float64"),
        ("GoogLeNet", (1, 3, 14, 14), r"in model GoogLeNet\.maxpool3 \(MaxPool2d\)"),
    ],
)
def test_images_that_do_not_fit_are_refused_with_the_layer(name, shape, message):
    model, x = made(name), np.ones(shape)
    with pytest.raises(ValueError, match=message):
        model(x)


def test_stages_keep_their_size_by_dilation():
    x = images("ResNet18")
    for name, whole in (("ResNet18", 1), ("ResNet50", 4)):
        model = getattr(models, name).init(
            KEY, 5, width=4, replace_stride_with_dilation=(False, True, True), dtype="float64"
        )
        shapes = [
            out.shape[1:] for out in model.extract(x, ["layer2", "layer3", "layer4"]).values()
        ]
        assert shapes == [(8 * whole, 4, 4), (16 * whole, 4, 4), (32 * whole, 4, 4)]
        dilations = [block.conv2.dilation for block in model.layer4]
        assert dilations == [2, *[4] * (len(dilations) - 1)]
    mobile = models.MobileNet_V3_Large.init(KEY, 5, width=0.25, dilated=True, dtype="float64")
    assert mobile.extract(x, ["features[16]"])["features[16]"].shape[2:] == (2, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: models.ResNet50.init(KEY, replace_stride_with_dilation=(True,)),
            "replace_stride_with_dilation must have a value for each of the last three stages",
        ),
        (lambda: models.MobileNetV2.init(KEY, width=0), "width must be a positive number"),
        (lambda: models.ResNet50.init(KEY, 0), "ResNet50.init: classes must be at least 1"),
        (lambda: models.VGG11.init(KEY, width=0), "VGG11.init: width must be at least 1"),
        (lambda: models.ViT_B_16.init(KEY, image_size=100), "multiple of patch_size 16"),
        (lambda: models.GPT2.init(KEY, n_head=5), "n_head 5 must divide n_embd 768"),
        (lambda: models.BERT.init(KEY, num_attention_heads=7), "7 must divide hidden_size 768"),
        (lambda: models.ResNeXt50_32x4d.init(KEY, width=8), "must be at least 1, got 0"),
        (
            lambda: models.ResNet50.init(KEY, depths=(1, 1)),
            "stage, of which there are 4; got",
        ),
        (lambda: models.ConvNeXt_Tiny.init(KEY, depths=()), "a number for each stage; got"),
        (lambda: models.VGG16.init(KEY, depths=(1, 0)), r"depths\[1\] must be at least 1"),
        (lambda: models.MobileNet_V3_Small.init(KEY, width=0), "width must be a positive number"),
        (lambda: models.VGG16.init(KEY, 5, width=1, hidden=1, dropout=1.5), "rate"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tokens_that_do_not_fit_are_refused():
    gpt2, bert = made("GPT2"), made("BERT")
    with pytest.raises(ValueError, match=r"11(.|\n)*in model GPT2\.wte \(Embed\)"):
        gpt2(np.array([[1, 11]]))
    with pytest.raises(ValueError, match=r"in model BERT\.word_embeddings \(Embed\)"):
        bert(np.array([[1, -1]]))
    with pytest.raises(ValueError, match="9 tokens are more than the model has positions, 8"):
        gpt2(np.ones((2, 9), int))
    with pytest.raises(ValueError, match="9 tokens are more than the model has positions, 8"):
        bert(np.ones((2, 9), int))
    for model in (gpt2, bert):
        with pytest.raises(TypeError, match="must be integers of shape"):
            model(np.ones((2, 3)))


# --- arrays of all kinds ------------------------------------------------------------


@small
def test_parameters_cannot_be_written_to(name):
    kind, (_, settings) = getattr(models, name.split()[0]), IMAGES[name]
    leaves = tree.leaves(kind.init(KEY, 5, **settings))
    assert not any(leaf.flags.writeable for leaf in leaves)
    assert {leaf.dtype for leaf in leaves} == {np.dtype("float32")}


@pytest.mark.parametrize("name", ["ResNet18", "GoogLeNet", "MobileNet_V3_Small", "ViT_B_16"])
def test_images_may_be_of_any_array_module(name, xp, to_numpy):
    model, x = made(name, "float32"), images(name, "float32")
    moved = tree.map(xp.asarray, model)
    y = moved(xp.asarray(x))
    assert type(y) is type(xp.asarray(x))
    np.testing.assert_allclose(to_numpy(y), model(x), rtol=1e-4, atol=1e-4)
    _, successor = moved.train(xp.asarray(x))
    assert type(tree.leaves(successor)[0]) is type(xp.asarray(x))


@pytest.mark.parametrize("name", ["GPT2", "BERT"])
def test_tokens_may_be_of_any_array_module(name, xp, to_numpy):
    model, tokens = made(name), np.array([[3, 1, 4]])
    y = tree.leaves(tree.map(xp.asarray, model)(xp.asarray(tokens)))[0]
    np.testing.assert_allclose(to_numpy(y), tree.leaves(model(tokens))[0], rtol=1e-9)
