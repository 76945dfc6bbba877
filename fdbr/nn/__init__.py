"""Frozen layers and initializers.

A layer is built by ``Layer.init(key, ...)``, called as ``y = layer(x)``, and in training as
``y, layer = layer.train(x, key=key)``, which returns its successor.
"""

from fdbr.errors.names import missing_from
from fdbr.nn import initializers, models
from fdbr.nn.activations import Maxout, PReLU, RReLU, Swish
from fdbr.nn.attention.blocks import DecoderBlock, GatedMLP, ViTBlock
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.embedding import Embed, PositionalEmbedding, SinusoidalEmbedding
from fdbr.nn.attention.encoders import Transformer, TransformerDecoder, TransformerEncoder
from fdbr.nn.attention.experts import MixtureOfExperts
from fdbr.nn.attention.grouped import GroupedQueryAttention
from fdbr.nn.attention.low_rank import LoRA, lora, merge_lora
from fdbr.nn.attention.memories import DecoderCache
from fdbr.nn.attention.multi_head import MultiHeadAttention
from fdbr.nn.attention.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from fdbr.nn.convolution.convnext import ConvNeXtBlock
from fdbr.nn.convolution.deformable import DeformableConv, DeformConv
from fdbr.nn.convolution.inception import Inception, MLPConv
from fdbr.nn.convolution.inception_bn import InceptionBN
from fdbr.nn.convolution.layers import (
    Conv,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from fdbr.nn.convolution.local import DepthwiseConv, LocalConv
from fdbr.nn.convolution.padding import Pad
from fdbr.nn.convolution.squeeze_excitation import SqueezeExcitation
from fdbr.nn.convolution.windows import Fold, Unfold
from fdbr.nn.dropout import (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    SimplifiedDropconnect,
    SpatialDropout,
    StochasticDepth,
)
from fdbr.nn.features import mark_layers
from fdbr.nn.formats.chainer_hdf5 import load_chainer_hdf5, save_chainer_hdf5
from fdbr.nn.formats.chainer_state import load_chainer_npz, save_chainer_npz
from fdbr.nn.formats.onnx_export import export_onnx, load_onnx
from fdbr.nn.formats.torch_state import load_torch_state, save_torch_state
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.nn.losses.classifier import Classifier
from fdbr.nn.losses.crf import CRF1d
from fdbr.nn.losses.sampled import BinaryHierarchicalSoftmax, BlackOut, NegativeSampling
from fdbr.nn.losses.sampling import WalkerAlias
from fdbr.nn.losses.trees import huffman_tree, tree_paths
from fdbr.nn.normalization.batches import BatchNorm, InstanceNorm
from fdbr.nn.normalization.layers import GroupNorm, LayerNorm, RMSNorm
from fdbr.nn.normalization.renormalization import BatchRenorm, DecorrelatedBatchNorm
from fdbr.nn.normalization.reparametrization import SpectralNorm, WeightNorm, WeightStandardization
from fdbr.nn.pooling.dimensions import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool1d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from fdbr.nn.pooling.layers import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    Flatten,
    FractionalMaxPool,
    LPPool,
    MaxPool,
    Unflatten,
)
from fdbr.nn.pooling.resampling import (
    ChannelShuffle,
    MaxUnpool,
    PixelShuffle,
    PixelUnshuffle,
    Upsample,
)
from fdbr.nn.recurrent.cells import GRUCell, LSTMCell, MGUCell, RNNCell
from fdbr.nn.recurrent.layers import GRU, LSTM, RNN
from fdbr.nn.recurrent.lstm_variants import PeepholeLSTMCell, ZoneoutLSTMCell
from fdbr.nn.recurrent.scanning import scan
from fdbr.nn.recurrent.tree_lstm import ChildSumTreeLSTM, NaryTreeLSTM
from fdbr.nn.sequential import Lambda, Sequential
from fdbr.nn.small import Bias, Bilinear, Highway, Identity, Parameter, Scale
from fdbr.nn.summaries import LayerSummary, Summary, summary

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "AdaptiveMaxPool",
    "AlphaDropout",
    "AvgPool",
    "BatchNorm",
    "BatchRenorm",
    "Bias",
    "Bilinear",
    "BinaryHierarchicalSoftmax",
    "BlackOut",
    "CRF1d",
    "ChannelShuffle",
    "ChildSumTreeLSTM",
    "Classifier",
    "Conv",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvNeXtBlock",
    "ConvTranspose",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DecoderBlock",
    "DecorrelatedBatchNorm",
    "DeformConv",
    "DeformableConv",
    "DepthwiseConv",
    "Dropout",
    "Embed",
    "Flatten",
    "Fold",
    "FractionalMaxPool",
    "FractionalMaxPool1d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "GRU",
    "GRUCell",
    "GatedMLP",
    "GaussianDropout",
    "GroupNorm",
    "GroupedQueryAttention",
    "Highway",
    "Identity",
    "Inception",
    "InceptionBN",
    "InstanceNorm",
    "DecoderCache",
    "KeyValueCache",
    "LPPool",
    "LSTM",
    "LSTMCell",
    "Lambda",
    "Layer",
    "LayerNorm",
    "LayerSummary",
    "Linear",
    "LocalConv",
    "MGUCell",
    "MLPConv",
    "MaxPool",
    "MaxUnpool",
    "Maxout",
    "MultiHeadAttention",
    "NaryTreeLSTM",
    "NegativeSampling",
    "PReLU",
    "Pad",
    "Parameter",
    "PeepholeLSTMCell",
    "PixelShuffle",
    "PixelUnshuffle",
    "PositionalEmbedding",
    "RMSNorm",
    "RNN",
    "RNNCell",
    "RReLU",
    "Scale",
    "Sequential",
    "SimplifiedDropconnect",
    "SinusoidalEmbedding",
    "SpatialDropout",
    "SpectralNorm",
    "SqueezeExcitation",
    "StochasticDepth",
    "Summary",
    "Swish",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unfold",
    "Unflatten",
    "Upsample",
    "ViTBlock",
    "WalkerAlias",
    "WeightNorm",
    "WeightStandardization",
    "ZoneoutLSTMCell",
    "export_onnx",
    "huffman_tree",
    "MixtureOfExperts",
    "LoRA",
    "lora",
    "mark_layers",
    "merge_lora",
    "initializers",
    "load_chainer_hdf5",
    "load_chainer_npz",
    "load_onnx",
    "load_torch_state",
    "models",
    "save_chainer_hdf5",
    "save_chainer_npz",
    "save_torch_state",
    "scan",
    "summary",
    "tree_paths",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`
