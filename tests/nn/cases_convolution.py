"""Cases of convolutional layers."""

from fdbr import nn, ops, tree
from nn.layer_cases import KEY, case, numbers


def _made(kind, *sizes, **settings):
    return lambda dtype: kind.init(KEY, *sizes, dtype=dtype, **settings)


def _moved(make):
    """A layer with no zeros, at which rectifiers have no derivative."""
    return lambda dtype: tree.map(lambda leaf: leaf + leaf.dtype.type(0.3), make(dtype))


case("Conv", _made(nn.Conv, 2, 2, 2, stride=2, padding=1), [(1, 2, 4, 3)])
case(
    "Conv without bias, groups, the input mirrored",
    _made(nn.Conv, 2, 4, (3, 1), groups=2, bias=False, padding=(1, 0), padding_mode="reflect"),
    [(2, 3, 2)],
)
case("Conv1d", _made(nn.Conv1d, 2, 1, 2, padding="same", dilation=2), [(2, 3)])
case("Conv2d", _made(nn.Conv2d, 1, 2, 2, padding=((1, 0), (0, 0))), [(1, 1, 2, 3)])
case("Conv3d", _made(nn.Conv3d, 1, 1, (1, 2, 1)), [(1, 1, 2, 2, 2)])
case(
    "ConvTranspose",
    _made(nn.ConvTranspose, 2, 2, 2, stride=2, padding=1, output_padding=1, groups=2),
    [(1, 2, 2, 3)],
)
case("ConvTranspose1d", _made(nn.ConvTranspose1d, 2, 1, 2, bias=False), [(2, 3)])
case("ConvTranspose2d", _made(nn.ConvTranspose2d, 1, 1, 2, stride=2), [(1, 1, 2, 1)])
case("ConvTranspose3d", _made(nn.ConvTranspose3d, 1, 1, (1, 2, 1)), [(1, 1, 2, 1, 2)])
case("Inception", _made(nn.Inception, 1, 1, 1, 1, 1, 1, 1), [(1, 1, 2, 2)])
case("MLPConv", _made(nn.MLPConv, 2, (2, 1), 2, activation=ops.tanh), [(1, 2, 2, 3)])
case("SqueezeExcitation", _made(nn.SqueezeExcitation, 2, 1), [(1, 2, 2, 1)])
case(
    "InceptionBN with a path of one pixel",
    _moved(_made(nn.InceptionBN, 1, 1, 1, 1, 1, 1, "avg", 1, momentum=0.5)),
    [(2, 1, 2, 2)],
    order=1,
)
case(
    "InceptionBN",
    _moved(_made(nn.InceptionBN, 1, 0, 1, 1, 1, 1, "max", stride=2)),
    [(2, 1, 3, 2)],
)
case(
    "ConvNeXtBlock", _made(nn.ConvNeXtBlock, 2, 0.5, 0.25, kernel_size=3), [(2, 2, 2, 1)], key=True
)
case(
    "DepthwiseConv",
    _made(nn.DepthwiseConv, 2, 2, (2, 1), stride=(2, 1), padding="same"),
    [(1, 2, 3, 2)],
)
case("LocalConv", _made(nn.LocalConv, 2, 2, (3, 2), 2, padding=(0, 1), stride=2), [(1, 2, 3, 2)])
case("LocalConv without bias", _made(nn.LocalConv, 1, 2, 3, 2, bias=False, ndim=1), [(1, 3)])


def _offsets(dtype):
    return (*(numbers(shape, dtype) for shape in ((1, 2, 3), (1, 4, 2))), numbers((1, 4, 2), dtype))


case("DeformConv", _made(nn.DeformConv, 2, 2, 2, groups=2, ndim=1), _offsets)
case(
    "DeformableConv",
    _moved(_made(nn.DeformableConv, 1, 1, (2, 1), padding=(1, 0), mask=True)),
    [(1, 1, 2, 1)],
    order=1,
)
case("Unfold", lambda dtype: nn.Unfold([2, 1], padding=1, stride=2), [(1, 2, 3, 2)])
case("Fold", lambda dtype: nn.Fold((3, 2), (2, 1), dilation=(2, 1)), [(1, 4, 2)])
case("Pad", lambda dtype: nn.Pad([(1, 0), (2, 1)], mode="circular"), [(2, 3, 2)])
case("Pad with a value", lambda dtype: nn.Pad([(1, 1)], "constant", 2.5), [(1, 2, 3)])
