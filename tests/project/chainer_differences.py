"""What holds here of each clause in counterparts/chainer.json that says what differs from Chainer.

A clause in a fixed form (an argument's name, a default, what is given by name) is read, and held
against the signature; what Chainer 7.8.1 has stands in the clause.  Each other one has its check
here, which is given what the row leads to.
"""

import inspect
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, train, tree

__all__ = ["CLAUSES", "read"]

KEY = random.key(0)
D = fdbr.distributions
X = np.array([[-1.0, 2.0, 0.5, 4.0], [3.0, 1.0, -2.0, 0.25]])
MAPS = np.arange(32.0).reshape(1, 8, 2, 2)
IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)
LABELS = np.array([0, 1])


def _parameters(f: Any) -> Any:
    f = f.init if inspect.isclass(f) and hasattr(f, "init") else f
    return inspect.signature(f).parameters


def _stepped(optimizer: Any, gradient: Any = 1.0) -> Any:
    """The update of a parameter of ones."""
    params = np.ones_like(gradient, dtype=np.float64)
    gradient = np.asarray(gradient, dtype=np.float64)
    return optimizer.update(gradient, optimizer.init(params), params)[0]


def _late_rate(f: Any) -> bool:
    """Whether a rate of zero stops a parameter that has momentum."""
    optimizer = f(lambda count: 1.0 - count, momentum=0.9)
    state = optimizer.init(1.0)
    _, state = optimizer.update(1.0, state, 1.0)
    return bool(optimizer.update(1.0, state, 1.0)[0] == 0.0)


def _default(f: Any, name: str) -> Any:
    return _parameters(f)[name].default


def _names(text: str) -> list[str]:
    return [name.strip("= ") for name in text.split(",")]


def _by_name(has: Any, name: str) -> bool:
    """Whether an argument may be given by its name."""
    return name in has and has[name].kind != inspect.Parameter.POSITIONAL_ONLY


def read(clause: str, f: Any) -> bool | None:
    """Whether a clause in a fixed form holds of a function; `None` for one in no such form."""
    has = _parameters(f) if callable(f) else {}  # a tuple of names has none
    if clause == "a key comes first":
        return next(iter(has)) == "key"
    if found := re.fullmatch(r"by name only: (.*)", clause):
        return all(has[name].kind == inspect.Parameter.KEYWORD_ONLY for name in _names(found[1]))
    if found := re.fullmatch(r"in the order (.*)", clause):
        by_place = [p.name for p in has.values() if p.kind != inspect.Parameter.KEYWORD_ONLY]
        return by_place[: len(_names(found[1]))] == _names(found[1])
    if found := re.fullmatch(r"no ((?:\w+(?:, )?)+)(?:: .*)?", clause):
        return not set(_names(found[1])) & has.keys()
    if found := re.fullmatch(r"(\w+)= must be given, Chainer's (\S+)", clause):
        return has[found[1]].default is inspect.Parameter.empty
    if found := re.fullmatch(r"by position only: (\w+), Chainer's (\w+)", clause):
        return has[found[1]].kind == inspect.Parameter.POSITIONAL_ONLY
    if found := re.fullmatch(r"(\w+)=(\S+) by default, Chainer's (\S+)", clause):
        ours, value, chainers = found.groups()
        return repr(has[ours].default) == value != chainers
    if found := re.fullmatch(r"(\w+)=(\S+) is Chainer's (\w+)=(\S+)", clause):
        return _by_name(has, found[1]) and found[3] not in has
    if found := re.fullmatch(r"((?:\w+=(?:, )?)+) (?:is|are) Chainer's ((?:\w+=(?:, )?)+)", clause):
        ours, chainers = _names(found[1]), _names(found[2])
        pairs = zip(ours, chainers, strict=True)
        return all(_by_name(has, here) and here != there for here, there in pairs)
    return None


def _refuses(f: Callable[[], Any]) -> bool:
    try:
        f()
    except (TypeError, ValueError):
        return True
    return False


def _equal(x: Any, y: Any) -> bool:
    return np.shape(x) == np.shape(y) and bool(np.allclose(x, y))


def _takes(f: Any, *names: str) -> bool:
    return set(names) <= _parameters(f).keys()


def _last_axis(f: Any) -> bool:
    """Whether what is normalised sums to one along the last axis, and along the second if asked."""
    x = np.stack([X, X * 2.0])
    key = {"key": KEY} if _takes(f, "key") else {}
    total = lambda y, axis: np.sum(np.exp(y) if f is ops.log_softmax else y, axis=axis)
    return _equal(total(f(x, **key), -1), np.ones((2, 2))) and _equal(
        total(f(x, axis=1, **key), 1), np.ones((2, 4))
    )


def _last_axis_of_classes(f: Any) -> bool:
    pixels, labels = np.moveaxis(np.stack([X, -X]), -1, 1), np.array([[3, 0], [2, 1]])
    ours, chainers = f(np.moveaxis(pixels, 1, -1), labels), f(pixels, labels, axis=1)
    pairs = zip(np.atleast_2d(ours), np.atleast_2d(chainers), strict=True)
    return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


def _uniform(f: Any) -> bool:
    leaves = tree.leaves(f.init(KEY, 300, 4))
    return 0.49 < np.max(np.abs(leaves[0])) <= 0.5


def _regions(f: Any) -> bool:
    """Whether a region of two columns and one row is told by x before y."""
    boxes = np.array([[0.0, 0, 0, 1, 0]])
    chainers = f(IMAGE, np.array([[0.0, 0, 0, 0, 1]]), 1, box_format="yxyx")
    return np.array_equal(f(IMAGE, boxes, 1), chainers)


def _integer(name: str) -> Callable[[Any], bool]:
    """Whether a size that may be `None` in Chainer must be given here."""

    def holds(f: Any) -> bool:
        given = [p for p in _parameters(f).values() if p.default is inspect.Parameter.empty]
        arguments = {p.name: "max" if p.name == "pooltype" else 2 for p in given[1:]}
        if "out_channels" in arguments and f is nn.MLPConv:
            arguments["out_channels"] = (2,)
        if f is nn.InceptionBN:
            arguments["proj_pool"] = 2
        if f is nn.LocalConv:
            arguments["in_size"] = (4, 4)
        f.init(KEY, **arguments)
        return _refuses(lambda: f.init(KEY, **{**arguments, name: None}))

    return holds


def _stride_of(model: Any) -> list[int]:
    """The strides of the first two convolutions in the first block of the second stage."""
    block = model.init(KEY, 10, width=4).layer2[0]
    return [int(np.max(conv.stride)) for conv in (block.conv1, block.conv2)]


def _chainers_resnet(f: Any) -> bool:
    model = f.init(KEY, 10, width=4, depths=(1, 1, 1, 1), chainer=True)
    return np.max(model.layer2[0].conv1.stride) == 2 and model.bn1.eps == 2e-5


def _gates(f: Any) -> bool:
    """Whether Chainer's interleaved gates are stacked ones in another order."""
    c, x = np.ones((2, 1)), X  # cell, input, forget, output
    ours, chainers = f(c, x[:, [1, 2, 0, 3]]), f(c, x, interleaved=True)
    return all(map(_equal, ours, chainers))


def _pairs_of_weights(f: Any) -> bool:
    count = {ops.n_step_lstm: 4, ops.n_step_gru: 3, ops.n_step_rnn: 1}[f]
    states = [None, None] if f is ops.n_step_lstm else [None]
    layers = [(np.ones((count, 2)), np.ones((count, 1))), (np.ones((count, 1)),) * 2]
    out = f(*states, layers, None, [np.ones((3, 2))])
    return out[0].shape == (2, 1, 1)  # the number of layers is that of the weights


def _cell_returns_its_state(f: Any) -> bool:
    layer = f.init(KEY, 3, 2)
    state = layer.initial_state(1)
    after, _ = layer(state, np.ones((1, 3), "f4"))
    return tree.structure(after) == tree.structure(state)


def _outputs_first(f: Any) -> bool:
    layer = f.init(KEY, 3, 2)
    outputs, state = layer([np.ones((5, 3), "f4")])
    again, _ = layer([np.ones((5, 3), "f4")], state)
    return outputs[0].shape == again[0].shape == (5, 2)


def _children(f: Any) -> bool:
    """Whether half of the memory, which comes second, is left where all weights are 0."""
    cell = tree.map(np.zeros_like, f.init(KEY, 3, 2))
    child, absent = (np.zeros(2, "f4"), np.ones(2, "f4")), cell.initial_state()
    h, c = cell(child, absent, np.ones(3, "f4"))
    return np.allclose(c, 0.5) and np.allclose(h, 0.5 * np.tanh(0.5))


def _scores(f: Any) -> bool:
    small: dict[str, Any] = {"depths": (1, 1, 1, 1)}
    if f is nn.models.GoogLeNet:
        small = {"chainer": True, "aux_logits": False}
    if f in (nn.models.VGG16, nn.models.VGG19):
        small = {"depths": (1, 1, 1, 1, 1), "hidden": 4}
    x = np.ones((1, 3, 64, 64), "f4")
    return f.init(KEY, 10, width=4, **small)(x).shape == (1, 10)


def _drawn(f: Any) -> bool:
    layer, x = f.init(KEY, 4, [1, 1, 1], 2), X.astype("f4")
    return _refuses(lambda: layer(x, LABELS)) and layer(x, LABELS, key=KEY).shape == ()


def _makes_an_array(f: Any) -> bool:
    needed = [p for p in _parameters(f).values() if p.default is inspect.Parameter.empty]
    shape = (2, 2) if f is nn.initializers.identity else (2, 2, 3, 3)
    return f(*[2.0 for _ in needed])(KEY, shape, "f4").shape == shape


EXAMPLES: dict[Any, Any] = {
    D.Bernoulli: (0.5,),
    D.Beta: (1.0, 2.0),
    D.Categorical: (np.ones(2) / 2,),
    D.Chi2: (1.0,),
    D.Dirichlet: (np.ones(2),),
    D.Geometric: (0.5,),
    D.Gamma: (1.0,),
    D.MultivariateNormal: (np.zeros(2),),
    D.OneHotCategorical: (np.ones(2) / 2,),
    D.Pareto: (1.0, 3.0),
    D.Poisson: (1.0,),
    D.Independent: (D.Normal(np.zeros((2, 2)), 1.0),),
}


def _example(f: Any) -> Any:
    more = {"scale_tril": np.eye(2)} if f is D.MultivariateNormal else {}
    return f(*EXAMPLES.get(f, ()), **more)


def _takes_a_key(f: Any) -> bool:
    example = _example(f)
    return _refuses(example.sample) and np.shape(example.sample(KEY, (3,)))[:1] == (3,)


def _places(f: Any) -> bool:
    """Whether places are those of the image: the second window's is the last of all."""
    maxima, places = ops.max_pool(np.arange(4.0).reshape(1, 1, 4), 2, return_indices=True)
    back = ops.max_unpool(maxima, places, 2)
    return places.tolist() == [[[1, 3]]] and back.tolist() == [[[0.0, 1.0, 0.0, 3.0]]]


def _weighted_mean(f: Any) -> bool:
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    each = f(X, LABELS, weight=weight, reduction="none")
    return _equal(f(X, LABELS, weight=weight), each.sum() / 3.0) and _equal(
        f(X, LABELS, weight=weight, normalize=True), each.mean()
    )


def _profile(f: Any) -> bool:
    with f() as profile:
        ops.exp(1.0)
    return [row.op for row in profile.rows] == ["exp"]


def _hears(f: Any) -> bool:
    heard: list[str] = []
    with f(lambda application: heard.append("before"), lambda *of: heard.append("after")):
        ops.exp(1.0)
    return heard == ["before", "after"]


def _saves_any_tree(f: Any) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        f(Path(folder) / "tree", {"x": X})
        return _equal(fdbr.train.load(Path(folder) / "tree", like={"x": X})["x"], X)


def _buffers_too(f: Any) -> bool:
    layer = nn.BatchNorm.init(KEY, 3)
    count = lambda of: f(of) if f is tree.size else len(f(of))
    return count(layer) == 2 * count(tree.trainable(layer))


@fdbr.typed(x="float[n]")
def _typed(x: Any) -> Any:
    return x


def _noise(f: Any) -> bool:
    """Whether the variance of the noise is eta at first, and eta / 2**gamma then."""
    noise, zeros = f(4.0, 2.0, KEY), np.zeros(100_000)
    first, state = noise.update(zeros, noise.init(zeros), zeros)
    second, _ = noise.update(zeros, state, zeros)
    return np.allclose([np.std(first), np.std(second)], [2.0, 1.0], rtol=0.02)


def _sequences(f: Any) -> bool:
    """Whether inputs and outputs are sequences, of which `ops.transpose_sequence` makes steps."""
    count = {ops.n_step_lstm: 4, ops.n_step_gru: 3, ops.n_step_rnn: 1}[f]
    states = [None, None] if f is ops.n_step_lstm else [None]
    xs = [np.ones((2, 3)), np.ones((5, 3))]
    *_, ys = f(*states, [(np.ones((count, 3)), np.ones((count, 1)))], None, xs)
    steps = ops.transpose_sequence([xs[1], xs[0]])
    return [len(y) for y in ys] == [2, 5] and [len(x) for x in steps] == [2, 2, 1, 1, 1]


def _last_gates(f: Any) -> bool:
    children = 1 if f is ops.lstm else 2
    gates = 5 if f is ops.tree_lstm else 4
    memories = [np.ones((2, 3, 5))] * children
    sums = lambda *shape: [np.ones(shape)] * (2 if f is ops.slstm else 1)
    return f(*memories, *sums(2, 3, 5 * gates))[0].shape == (2, 3, 5) and _refuses(
        lambda: f(*memories, *sums(2, 3 * gates, 5))
    )


def _spread(leaf: Any, deviation: float) -> bool:
    return bool(np.isclose(np.std(leaf), deviation, rtol=0.1))


def _corrected_eps(f: Any) -> bool:
    """Whether the first update is 3 / (3 + eps), Chainer's being 3 / (3 + eps / sqrt(1 - b2))."""
    more = {"weight_decay": 0.0} if _takes(f, "weight_decay") else {}
    update = lambda eps: _stepped(f(1.0, 0.9, 0.75, eps=eps, **more), 3.0)
    return np.isclose(update(1.0), -3 / 4) and np.isclose(update(1 / 0.25**0.5), -3 / (3 + 2))


def _greatest_corrected(f: Any) -> bool:
    """Whether the second update divides by 9, the first corrected variance; uncorrected it is 5."""
    optimizer = f(1.0, 0.0, 0.5)
    _, state = optimizer.update(3.0, optimizer.init(1.0), 1.0)
    return np.isclose(optimizer.update(1.0, state, 1.0)[0], -1 / 3)


def _added_up(f: Any) -> bool:
    y, at = ops.max_pool(np.array([[[0.0, 1.0, 0.0]]]), 2, 1, return_indices=True)
    return f(y, at, 2, 1)[0, 0, 1] == 1.0 and f(y, at, 2, 1, accumulate=True)[0, 0, 1] == 2.0


def _half_open(f: Any) -> bool:
    box = np.array([[0.0, 0.0, 1.0, 1.0]])
    pool = lambda box, **more: f(IMAGE, box, 1, box_format="yxyx", **more).item()
    chainers = {"inclusive": False, "empty": -np.inf}
    found = pool(box), pool(box, **chainers), pool(box + 9, **chainers)
    return found == (5.0, 0.0, -np.inf)


def _channels_axis(f: Any) -> bool:
    if f is ops.batch_norm:
        return f(X[:, None], axis=-1)[1].shape == (4,)
    return f.init(KEY, 4, axis=-1)(X[:, None]).shape == (2, 1, 4)


def _gives(text: str) -> Callable[[Any], bool]:
    """Whether a function says in its signature that it gives something of a kind."""
    return lambda f: text in str(inspect.signature(f).return_annotation)


def _image(f: Any) -> Any:
    """The first example of a dataset of images."""
    pillow = pytest.importorskip("PIL.Image")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "class", "image.png")
        path.parent.mkdir()
        pillow.fromarray(np.zeros((2, 3, 3), np.uint8)).save(path)
        return f(folder)[0] if f is train.image_folder else f([(path, 3)])[0]


CLAUSES: dict[str, Callable[[Any], Any]] = {
    # functions of arrays
    "takes two arrays, Chainer's any number": lambda f: _refuses(lambda: f(X, X, X)),
    "no transa, transb: ops.matrix_transpose": lambda f: (
        not _takes(f, "transa") and f(ops.matrix_transpose(X), X).shape == (4, 4)
    ),
    "no transa, transb: x.T": lambda f: not _takes(f, "transa"),
    "a list, Chainer's a tuple": lambda f: isinstance(f(X, 2) if f is ops.split else f(X, X), list),
    "the axis may be left out of one axis alone, Chainer's flattens": lambda f: (
        _refuses(lambda: f(X)) and f(X[0]).shape == (4,)
    ),
    "of the last two axes, Chainer's of axis1=0 and axis2=1": lambda f: (
        f(IMAGE).shape == (1, 1, 3) and not _takes(f, "axis1")
    ),
    "axes are letters": lambda f: f("ij->ji", X).shape == (4, 2),
    "Chainer's may be lists of numbers, too": lambda f: _refuses(lambda: f(X, [0, 1], [1, 0])),
    "of complex arrays, Chainer's of pairs of a real and an imaginary part": lambda f: (
        f(X[0] + 1j).dtype == "c16" and _refuses(lambda: f((X[0], X)))
    ),
    "a function is returned: checkpoint(f)(*xs)": lambda f: f(ops.exp)(0.0) == 1.0,
    "lerp(y, x, p) is Chainer's linear_interpolate(p, x, y)": lambda f: f(2.0, 1.0, 0.25) == 1.75,
    "no weights: ops.average": lambda f: (
        not _takes(f, "weights") and ops.average(X[0], weights=np.eye(4)[1]) == 2.0
    ),
    "moveaxis(x, axis, start) is Chainer's rollaxis(x, axis, start) if start <= axis, and "
    "moveaxis(x, axis, start - 1) otherwise": lambda f: all(
        f(np.ones((2, 3, 4)), axis, start if start <= axis else start - 1).shape
        == np.rollaxis(np.ones((2, 3, 4)), axis, start).shape
        for axis in range(3)
        for start in range(4)
    ),
    "of the elements in row-major order, Chainer's of the memory under a view": lambda f: (
        f(X[:, 1:], (3,), (1,)).tolist() == [2.0, 0.5, 4.0]
    ),
    "a matrix is one matrix for all, Chainer's (B, N) are B columns: x[:, :, None]": lambda f: (
        f(np.ones((3, 4)), np.ones((3, 4, 2))).shape == (3, 3, 2)
    ),
    "float16 is refused, as by NumPy: ops.astype(x, 'float32')": lambda f: (
        _refuses(lambda: f(np.eye(2, dtype="f2"))) and f(np.eye(2, dtype="f4")).dtype == "f4"
    ),
    "ties share the gradient, each gets all of it in Chainer": lambda f: _equal(
        fdbr.grad(f)(np.array([2.0, 2.0])), [0.5, 0.5]
    ),
    "constant_values= is one of Chainer's keywords=": lambda f: _takes(f, "constant_values"),
    "take_along_axis(x, t[:, None], axis=1)[:, 0] is Chainer's select_item(x, t)": lambda f: (
        f(X, LABELS[:, None], axis=1)[:, 0].tolist() == [-1.0, 1.0]
    ),
    "axes must be given": lambda f: _refuses(lambda: f(X)),
    # the same, of networks
    "count_include_pad=False is Chainer's pad_value=None": lambda f: (
        f(np.ones((1, 1, 2)), 2, 1, 1)[0, 0, 0] == 0.5
        and f(np.ones((1, 1, 2)), 2, 1, 1, count_include_pad=False)[0, 0, 0] == 1.0
    ),
    "the places that return_indices gives are of the image, Chainer's of the window": _places,
    "places are of the image, Chainer's of the window": _places,
    "the slope is 1/6 by default, Chainer's 0.2: slope=0.2": lambda f: (
        np.isclose(f(1.0), 4 / 6) and np.isclose(f(1.0, slope=0.2), 0.7)
    ),
    "alpha and scale are fixed": lambda f: list(_parameters(f)) == ["x"],
    "along the last axis by default, Chainer's along the second": _last_axis,
    "along the last axis: a batch of images is not flattened": lambda f: (
        f(np.ones((2, 3, 4)), np.ones((5, 4))).shape == (2, 3, 5)
    ),
    "classes along the last axis by default, Chainer's along the second": _last_axis_of_classes,
    "all classes of the scores by default, Chainer's those up to the largest label": lambda f: (
        f(X, LABELS)[0].shape == (4,) and f(X, LABELS, num_classes=2)[0].shape == (2,)
    ),
    "the statistics are returned, and running ones belong to nn.BatchNorm": lambda f: (
        len(f(X)) == 3
    ),
    "the statistics are returned, and running ones belong to nn.BatchRenorm": lambda f: (
        len(f(X, running_mean=np.zeros(4), running_var=np.ones(4))) == 3
    ),
    "the statistics are returned, and running ones belong to nn.DecorrelatedBatchNorm": lambda f: (
        len(f(X, 2)) == 3
    ),
    "the first of the three arrays that are returned": lambda f: (
        f(X, mean=np.zeros(4), variance=np.ones(4))[0].shape == X.shape
        if f is ops.batch_norm
        else f(X, 1, mean=np.zeros((1, 4)), projection=np.eye(4)[None])[0].shape == X.shape
    ),
    "alpha is divided by the size by default, and k is 1": lambda f: (
        _default(f, "average") is True and _default(f, "k") == 1
    ),
    "Chainer's is k=2, average=False": lambda f: np.isclose(
        f(np.ones((1, 1, 1)), k=2, average=False)[0, 0, 0], (2 + 1e-4) ** -0.75
    ),
    "the norm is at least eps, 1e-12": lambda f: _default(f, "eps") == 1e-12,
    "add_eps=True adds it, as Chainer does 1e-5": lambda f: np.isclose(
        f(np.array([[3.0, 4.0]]), eps=5.0, add_eps=True)[0, 0], 0.3
    ),
    "weights have shape (out, in1, in2) and (out, in), Chainer's (in1, in2, out) and (in, out)": (
        lambda f: f(np.ones(2), np.ones(3), np.ones((5, 2, 3)), weight1=np.ones((5, 2))).size == 5
    ),
    "weights have shape (channels * multiplier, 1, *kernel), Chainer's (multiplier, channels, "
    "*kernel)": lambda f: (
        f(MAPS, np.ones((16, 1, 1, 1))).shape == (1, 16, 2, 2)
        if f is ops.depthwise_conv
        else f.init(KEY, 8, 2, 1).weight.shape == (16, 1, 1, 1)
    ),
    "offsets are in torchvision's order": lambda f: _default(f, "planar") is False,
    "planar=True is Chainer's": lambda f: _takes(f, "planar"),
    "windows are one axis by default": lambda f: f(IMAGE, (2, 2)).shape == (1, 4, 6),
    "flatten=False is Chainer's": lambda f: f(IMAGE, (2, 2), flatten=False).shape == (1, 4, 2, 3),
    "the channels are in PyTorch's order": lambda f: (
        not np.array_equal(f(MAPS, 2), f(MAPS, 2, mode="DCR"))
    ),
    "mode='DCR' is Chainer's": lambda f: (
        f(MAPS, 2, mode="DCR")[0, 0, 0].tolist() == [0.0, 8.0, 1.0, 9.0]
        if f is ops.pixel_shuffle
        else f(MAPS, 2, mode="DCR")[0, :3, 0, 0].tolist() == [0.0, 4.0, 8.0]
    ),
    "the nearest element by default": lambda f: _default(f, "mode") == "nearest",
    "mode='bilinear', align_corners=True is Chainer's": lambda f: (
        f(IMAGE, (1, 3), mode="bilinear", align_corners=True)[0, 0, 0].tolist() == [0.0, 1.5, 3.0]
    ),
    "coordinates are the last axis, and edges not corners, by default": lambda f: (
        f(np.eye(2, 3)[None], (3, 4))[0, 0, 0].tolist() == [-0.75, -2 / 3]
        if f is ops.affine_grid
        else f(IMAGE, np.zeros((1, 2, 5, 2))).shape == (1, 1, 2, 5)
    ),
    "align_corners=True, axis=1 is Chainer's": lambda f: (
        f(np.eye(2, 3)[None], (3, 4), align_corners=True, axis=1)[0, :, 0, 0].tolist()
        == [-1.0, -1.0]
        if f is ops.affine_grid
        else f(IMAGE, np.ones((1, 2, 1, 1)), align_corners=True, axis=1).item() == 11.0
    ),
    "corners are x before y": _regions,
    "box_format='yxyx' is Chainer's": _regions,
    "output_size= is a pair, Chainer's outh and outw": lambda f: (
        f(IMAGE, np.array([[0.0, 0, 0, 3, 2]]), (3, 2)).shape == (1, 1, 3, 2)
    ),
    "maxima alone: no pooling": lambda f: not _takes(f, "pooling"),
    "it takes a key": lambda f: _takes(f, "key"),
    "it takes a key in training, and none else": lambda f: (
        f(X).shape == X.shape and not _equal(f(X), f(X, key=KEY))
    ),
    "without a key, linear is the function for inference": lambda f: (
        _refuses(lambda: f(X, np.ones((1, 4)))) and ops.linear(X, np.ones((1, 4))).shape == (2, 1)
    ),
    "inclusive=False, empty=-np.inf is Chainer's, whose regions end before the last corner": (
        _half_open
    ),
    "accumulate=True is Chainer's, which adds elements up where windows overlap": _added_up,
    "the inputs end in an axis each, Chainer's are flattened to (batch, size)": lambda f: _refuses(
        lambda: f(np.ones((3, 2, 2)), np.ones((3, 3)), np.ones((5, 4, 3)))
    ),
    # losses
    "no cache_score, enable_double_backprop, soft_target_loss: labels that are floating are "
    "probabilities, and their loss is the cross entropy": lambda f: (
        np.isclose(f(X, np.eye(4)[:2]), f(X, LABELS)) and not _takes(f, "soft_target_loss")
    ),
    "it takes logarithms of probabilities, log_softmax of Chainer's activations": lambda f: (
        np.isclose(f(np.log([[[0.5, 0.5]]]), np.array([[1]])), np.log(2))
    ),
    "the mean of all elements by default, Chainer's the sums along the second axis": lambda f: (
        np.isclose(f(X, 0 * X), f(X, 0 * X, reduction="none").mean())
    ),
    "no label is ignored by default, Chainer's ignore_label is -1": lambda f: (
        _refuses(lambda: f(X, np.array([0, -1])))
        and np.isclose(f(X, np.array([0, -1]), ignore_label=-1), f(X[:1], LABELS[:1]))
    ),
    "a mean with weights divides by the weights of the labels": _weighted_mean,
    "normalize=True is Chainer's": _weighted_mean,
    "takes the samples that were drawn, Chainer's a sampler and their number": lambda f: (
        f(X, LABELS, X, np.array([0, 1])).shape == () and not _takes(f, "sampler", "sample_size")
    ),
    # recurrent networks
    "the gates are stacked as in PyTorch": _gates,
    "interleaved=True is Chainer's order": _gates,
    "weights are pairs (weight_ih, weight_hh) with gates stacked as in PyTorch, Chainer's lists "
    "with a matrix for each gate": _pairs_of_weights,
    "the number of layers is theirs": _pairs_of_weights,
    "dropout= is Chainer's dropout_ratio=, and takes a key": lambda f: _takes(f, "dropout", "key"),
    "bidirectional=True is the bidirectional one": lambda f: _default(f, "bidirectional") is False,
    "xs and outputs are sequences, Chainer's are over time: ops.transpose_sequence makes one of "
    "the other": _sequences,
    "gates are along the last axis, Chainer's along the second: ops.moveaxis": _last_gates,
    "time is the first axis": lambda f: f([np.ones(3), np.ones(2)]).shape == (3, 2),
    "batch_first=True is Chainer's": lambda f: (
        f([np.ones(3), np.ones(2)], batch_first=True).shape == (2, 3)
    ),
    "the state is an argument and a result": _cell_returns_its_state,
    "the state is a pair (h, c): cell((h, c), x)": _cell_returns_its_state,
    "the forget gate's bias is 0, Chainer's forget_bias=1": lambda f: (
        f.init(KEY, 3, 2, forget_bias=1.0).bias_ih[2:4] == 1
    ).all(),
    "the forget gate's bias is 0 by default, Chainer's forget_bias=1": lambda f: (
        _default(f, "forget_bias") is None
    ),
    "reset_first=True is Chainer's mathematics": lambda f: _default(f, "reset_first") is False,
    "weights are uniform between ±1 / sqrt(hidden_size) by default, Chainer's LeCun's normal": (
        _uniform
    ),
    "children are pairs of output and memory, and so is the result: h, c = cell((h1, c1), "
    "(h2, c2), x) is Chainer's c, h = cell(c1, c2, h1, h2, x)": _children,
    "a child that is not there is initial_state(batch_shape), Chainer's None": lambda f: (
        _refuses(lambda: f.init(KEY, 3, 2)(None, np.ones(3, "f4")))
        and f.init(KEY, 3, 2).initial_state(4)[0].shape == (4, 2)
    ),
    "called with the sequences and then the state, and returns the outputs first": _outputs_first,
    "bidirectional=True": lambda f: (
        f.init(KEY, 3, 2, bidirectional=True)(np.ones((4, 3)))[0].shape == (4, 4)
    ),
    "nonlinearity='relu'": lambda f: _default(f, "nonlinearity") == "tanh",
    "bidirectional=True and nonlinearity='relu'": lambda f: (
        f.init(KEY, 3, 2, bidirectional=True, nonlinearity="relu")(X[:, :3])[0].min() >= 0
    ),
    # links
    **{
        f"{name} is an integer, Chainer's may be None": _integer(name)
        for name in ("in_channels", "in_features", "num_features", "num_channels")
    },
    "normalized_shape must be given, Chainer's may be None": _integer("normalized_shape"),
    "the input is not flattened: nn.Flatten() before it is Chainer's": lambda f: (
        f.init(KEY, 4, 1)(X[None]).shape == (1, 2, 1)
        and nn.Sequential(nn.Flatten(), f.init(KEY, 8, 1))(X[None]).shape == (1, 1)
    ),
    "weight_init is in the place of wscale": lambda f: _takes(f, "weight_init"),
    "axis= is that of the channels, Chainer's those over which statistics are taken": (
        _channels_axis
    ),
    "momentum=None averages all batches, as Chainer's finetune=True": lambda f: (
        f.init(KEY, 4, momentum=None).train(X)[1].train(3 * X)[1].running_mean[1] == 3.0
    ),
    "weights have shape (out, in1, in2), Chainer's (in1, in2, out)": lambda f: (
        f.init(KEY, 2, 3, 5).weight.shape == (5, 2, 3)
    ),
    "there are no linear terms by default, linear_terms=True is Chainer's": lambda f: (
        f.init(KEY, 2, 3, 5).weight1 is None
        and f.init(KEY, 2, 3, 5, linear_terms=True).weight1.shape == (5, 2)
    ),
    "a call takes a key, by which classes are drawn": _drawn,
    "returns the loss and a dict of metrics, and stores nothing": lambda f: (
        list(f(nn.Lambda(lambda x: x))(X, LABELS)[1]) == ["accuracy"]
    ),
    "labels are the second argument": lambda f: f(nn.Lambda(lambda x: x))(X, LABELS)[0].shape == (),
    "output_padding= in the place of outsize=": lambda f: (
        "output_padding" in _parameters(f) and not _takes(f, "outsize")
    ),
    "ndim= after the kernel, Chainer's first": lambda f: (
        f.init(KEY, 1, 2, 3, ndim=1).weight.ndim == 3
    ),
    "offsets begin at 0, Chainer's with LeCun's normal weights": lambda f: (
        not f.init(KEY, 2, 3, 3).offset_conv.weight.any()
    ),
    "the weight is LeCun's normal by default, Chainer's 0": lambda f: _spread(
        f.init(KEY, 32, 32, 3).deform_conv.weight, (32 * 9) ** -0.5
    ),
    "the weight is normal with deviation 1 / sqrt(kernel elements) by default, Chainer's "
    "1 / sqrt(channels * kernel elements)": lambda f: _spread(f.init(KEY, 64, 4, 3).weight, 1 / 3),
    "the fan of the weight is that of one position by default, Chainer's counts positions too": (
        lambda f: _spread(f.init(KEY, 8, 8, (6, 6), 3).weight, 72**-0.5)
    ),
    "weight and bias are uniform between ±1 / sqrt(in1_features) by default, Chainer's weight "
    "LeCun's normal and bias 0": lambda f: all(
        0.3 < np.max(np.abs(part)) <= np.float32(1 / 3)
        for part in (f.init(KEY, 9, 9, 99).weight, f.init(KEY, 9, 9, 99).bias)
    ),
    "gate_bias_init=None by default, Chainer's -1, which is what None means": lambda f: (
        f.init(KEY, 3).transform.bias == -1
    ).all(),
    "bias_init=None by default, Chainer's 0, which is what None means": lambda f: (
        not f.init(KEY, 3, 2, 2).linear.bias.any()
    ),
    "metrics=None by default, Chainer's accfun=accuracy": lambda f: (
        _default(f, "metrics") is None and "accuracy" in f(nn.Lambda(lambda x: x))(X, LABELS)[1]
    ),
    "one slope has shape (1,), Chainer's ()": lambda f: f.init(KEY).weight.shape == (1,),
    "init(key, shape) makes the array": lambda f: tree.size(f.init(KEY, (2, 3))) == 6,
    "nn.Parameter(array) is Chainer's": lambda f: tree.leaves(f(X))[0].shape == X.shape,
    # models
    "with batch normalisation, as in torchvision": lambda f: (
        f.init(KEY, 10, width=4).local_norm is False
    ),
    "init(key, chainer=True) is Chainer's, which is the paper's": lambda f: (
        f.init(KEY, 10, width=4, chainer=True).local_norm is True
    ),
    "the stride is in the 3x3 convolution, as in torchvision": lambda f: _stride_of(f) == [1, 2],
    "init(key, chainer=True) is Chainer's, whose first pooling has no padding and whose eps is "
    "2e-5": _chainers_resnet,
    "a call gives scores of the classes, Chainer's a dict of layers with prob": _scores,
    "weights come from a file: load_chainer_npz": lambda f: callable(nn.load_chainer_npz),
    # initializers
    "called with a key, a shape and a dtype, it returns an array": _makes_an_array,
    "Chainer's fills one": _makes_an_array,
    "linear alone: no interpolation": lambda f: not _parameters(f),
    # distributions
    "the parameters are named probs and logits": lambda f: _takes(f, "probs", "logits"),
    "samples are floating": lambda f: f(probs=0.5).sample(KEY).dtype.kind == "f",
    "sample takes a key": _takes_a_key,
    "entropy is a method": lambda f: callable(f.entropy),
    "concentration1= and concentration0= are Chainer's a= and b=": lambda f: (
        f(concentration1=1.0, concentration0=3.0).mean == 0.25
    ),
    "loc is 0 and scale 1 by default, Chainer's must be given": lambda f: (
        (f().loc, f().scale) == (0.0, 1.0)
    ),
    "the second parameter is the rate, one over Chainer's theta": lambda f: f(2.0, 4.0).mean == 0.5,
    "counts failures from 0 on, as in PyTorch": lambda f: f(0.5).mean == 1,
    "start=1 counts trials, as in Chainer": lambda f: f(0.5, start=1).mean == 2,
    "a covariance_matrix= may be given in the place of scale_tril=": lambda f: np.isclose(
        f(np.zeros(1), covariance_matrix=np.array([[4.0]])).scale_tril, 2.0
    ),
    "no log_scale: the scale is its exponential": lambda f: not _takes(f, "log_scale"),
    "low and high alone, Chainer's also loc and scale": lambda f: (
        list(_parameters(f)) == ["low", "high"]
    ),
    # hooks
    "a hook of any kind: before and after are functions": _hears,
    "gives a Profile, whose rows are operations, directions and lines": _profile,
    "a line for each operation, without statistics of its arrays": lambda f: _takes(f, "file"),
    "wraps a layer: SpectralNorm.init(key, layer)": lambda f: (
        f.init(KEY, nn.Linear.init(KEY, 4, 3))(X).shape == (2, 3)
    ),
    "wraps a layer: WeightStandardization(layer)": lambda f: (
        f(nn.Linear.init(KEY, 4, 3))(X).shape == (2, 3)
    ),
    # the core
    "gradients are returned, and nothing accumulates": lambda f: (
        [f(ops.exp, 0.0)[1](1.0)[0] for _ in range(2)] == [1.0, 1.0]
    ),
    "a template and values, at the time at which they are known": lambda f: (
        next(iter(_parameters(f))) == "template"
    ),
    "the value is returned, and the argument stays as it is": lambda f: f(2.0) == 2.0,
    "takes a function and returns one, Chainer's takes outputs and inputs": lambda f: (
        f(lambda x: x * x)(3.0) == 6.0
    ),
    "takes a function and its arguments, and returns the drawing": lambda f: (
        "exp" in str(f(ops.exp, 0.0))
    ),
    "of every tree and of all its leaves, buffers among them: tree.trainable has those that are "
    "trained": _buffers_too,
    "the sum is returned": lambda f: f([1.0], [2.0]) == [3.0],
    "a field of a frozen class, declared once": lambda f: (
        "running_mean" in tree.paths(nn.BatchNorm.init(KEY, 1))[2]
    ),
    "saves any tree, as safetensors": _saves_any_tree,
    "returns the layer there, and leaves the argument where it is": lambda f: _equal(
        f({"x": X})["x"] if f is fdbr.device_get else f({"x": X}, "cpu")["x"], X
    ),
    "frozen: there is no append": lambda f: not hasattr(f, "append"),
    "a decorator of one function, which is on always": lambda f: _refuses(lambda: _typed(X)),
    "patterns of shapes and dtypes, as strings": lambda f: _typed(X[0]).shape == (4,),
    "takes a function and its arguments, and checks both modes up to order=2": lambda f: (
        f(ops.exp, 0.5) is None and _default(f, "order") == 2
    ),
    "takes a function and its arguments, and returns the gradients of all": lambda f: _equal(
        f(lambda x, y: x * y, 2.0, 3.0), [3.0, 2.0]
    ),
    "rtol before atol, both by the dtype": lambda f: list(_parameters(f))[2:] == ["rtol", "atol"],
    "Chainer's are atol=1e-5, rtol=1e-4": lambda f: _default(f, "rtol") is None,
    # training
    "Nesterov's only with nesterov=True": lambda f: (
        _stepped(f(0.1, momentum=0.9, nesterov=True)) != _stepped(f(0.1, momentum=0.9))
    ),
    "the rate multiplies the sum of gradients, Chainer's each gradient": _late_rate,
    "eps is added to the root of the corrected variance, Chainer's to that of the uncorrected one: "
    "eps / sqrt(1 - b2**t) is Chainer's at update t": _corrected_eps,
    "the greatest corrected variance counts, Chainer's the greatest uncorrected one": (
        _greatest_corrected
    ),
    "eps is added below the root, Chainer's to the root": lambda f: np.isclose(
        _stepped(f(1.0, 0.0, eps=7.0), 3.0), -3 / 4
    ),
    "the first update is the rate by 1 + m, Chainer's by 1 + m + m**2: its velocity is that after "
    "the step": lambda f: np.isclose(_stepped(f(0.1, momentum=0.9, nesterov=True)), -0.19),
    "Graves's only with centered=True, momentum=0.9": lambda f: (
        _stepped(f(0.1, centered=True, momentum=0.9)) != _stepped(f(0.1))
    ),
    "the decay is multiplied by the learning rate, Chainer's is not": lambda f: np.isclose(
        _stepped(f(0.1, weight_decay=0.5), 0.0), -0.1 * 0.5
    ),
    "takes a key": lambda f: _takes(f, "key"),
    "the variance of the noise of update t is eta / t**gamma, Chainer's eta / (1 + t)**0.55": (
        _noise
    ),
    "no repeat: fit says for how many epochs": lambda f: not _takes(f, "repeat"),
    "goes around batches": lambda f: len(list(f(train.Batches(X, 1)).epoch(0))) == 2,
    "threads by default, processes=True is asked for": lambda f: _default(f, "processes") is False,
    "mode= says which of two values is better, Chainer's a function": lambda f: (
        _takes(f, "mode") and not _takes(f, "compare")
    ),
    'the greatest with mode="max"': lambda f: _takes(f, "mode") and _default(f, "mode") == "min",
    "takes a function of the state, Chainer's an iterator and a model": lambda f: (
        next(iter(_parameters(f))) == "metrics_of_state"
    ),
    "a stage: train.pipe(reports, stage)": _gives("Iterator[fdbr.train.loop.reports.Report]"),
    "a schedule: a function from the count of updates to a rate, given in the place of the rate": (
        _gives("Schedule")
    ),
    "takes the function whose tape is drawn": lambda f: _takes(f, "function"),
    "staircase=True is Chainer's": lambda f: (
        f(1.0, 2, 0.1, staircase=True)(1) == 1.0 and f(1.0, 2, 0.1)(1) < 1.0
    ),
    "percentiles=(0,…,100) by default, Chainer's also 0.13 and 99.87": lambda f: (
        {0, 100} < set(_default(f, "percentiles")) and 0.13 not in _default(f, "percentiles")
    ),
    "value is a function of the report, Chainer's of the trainer": lambda f: _takes(f, "value"),
    "no optimizer_name: value is a function of the report": lambda f: _takes(f, "value"),
    # data
    "an epoch's order is a function of the key and the epoch, Chainer's of the order before": (
        lambda f: list(inspect.signature(f.__call__).parameters)[1:3] == ["key", "epoch"]
    ),
    "takes the number of examples": lambda f: sorted(f(3)(KEY, 0).tolist()) == [0, 1, 2],
    "a key shuffles, Chainer's default does": lambda f: (
        np.concatenate(list(f(np.arange(9), 3).epoch(0))).tolist() == list(range(9))
        and np.concatenate(list(f(np.arange(9), 3, KEY).epoch(0))).tolist() != list(range(9))
    ),
    "images are uint8, Chainer's float32": lambda f: _image(f)["image"].dtype == "uint8",
    "an example is a dict with image and label, Chainer's a pair": lambda f: (
        list(_image(f)) == ["image", "label"]
    ),
    "root='.' by default, Chainer's must be given": lambda f: _default(f, "root") == ".",
    "labels=False gives images alone, as Chainer's": lambda f: _default(f, "labels") is True,
    "files of write_examples, Chainer's pickles": lambda f: "write_examples" in f.__doc__,
    "takes all examples at once": lambda f: _takes(f, "examples"),
    "one path": lambda f: not _takes(f, "paths"),
    "reads the files of a directory, Chainer's downloads them": lambda f: (
        list(_parameters(f)) == ["directory"]
    ),
    "a dict of arrays for each part, Chainer's a dataset of pairs": _gives("tuple[dict["),
    "returns the vocabulary, too": _gives("Mapping[str, int]"),
    "the last of what it returns": _gives("Mapping[str, int]]"),
    "a tuple, Chainer's a function": lambda f: isinstance(f, tuple),
    "every example is in a part, Chainer's drops those that are over": lambda f: (
        [len(part) for part in f(np.arange(5), 2)] == [3, 2]
    ),
    "the first fold tests the first examples, Chainer's the last ones": lambda f: (
        [int(x) for x in f(np.arange(5), 2)[0][1]] == [0, 1, 2]
    ),
    **dict.fromkeys(
        (
            "parts= is a list of lengths, Chainer's split_at one",
            "parts= is a list of lengths, Chainer's first_size one",
        ),
        lambda f: [len(part) for part in f(np.arange(5), [3, 2])] == [3, 2],
    ),
    "the model comes first": lambda f: next(iter(_parameters(f))) == "model",
    "returns the model with the weights": lambda f: "returns" in f.__doc__.lower(),
    "no target: it returns the dict": _gives("dict[str"),
    "takes the folder first": lambda f: next(iter(_parameters(f))) == "folder",
}
"""The check of each clause that is in no fixed form."""
