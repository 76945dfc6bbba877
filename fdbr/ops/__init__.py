"""Operations on arrays, raw or traced, under the names of the Python Array API standard.

On raw arrays they cost what their array module costs; inside a transformation they are
differentiated.  Functions of deep learning stand beside those of the standard.
"""

from math import e, inf, nan, pi
from types import ModuleType as _Module

from fdbr.ops.arranging import *
from fdbr.ops.creation import *
from fdbr.ops.cumulative import *
from fdbr.ops.dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from fdbr.ops.elementwise.arithmetic import *
from fdbr.ops.elementwise.comparison import *
from fdbr.ops.elementwise.complex_parts import conj, imag, real
from fdbr.ops.elementwise.exponential import *
from fdbr.ops.elementwise.logistic import logaddexp, sigmoid
from fdbr.ops.elementwise.trigonometric import *
from fdbr.ops.indexing.reading import getitem, take, take_along_axis
from fdbr.ops.indexing.segments import *
from fdbr.ops.indexing.writing import at
from fdbr.ops.inspection import *
from fdbr.ops.inspection import VERSIONS, __array_namespace_info__
from fdbr.ops.networks.activations.exponentials import log_softmax, logsumexp, relu, softmax
from fdbr.ops.networks.activations.gates import *
from fdbr.ops.networks.activations.nonlinearities import *
from fdbr.ops.networks.activations.rectifiers import *
from fdbr.ops.networks.attention.embedding import embed
from fdbr.ops.networks.attention.positions import alibi_bias, rotary_embedding, sinusoidal_embedding
from fdbr.ops.networks.attention.products import scaled_dot_product_attention
from fdbr.ops.networks.broadcasts import bias, bilinear, scale
from fdbr.ops.networks.convolution.channelwise import depthwise_conv, shift
from fdbr.ops.networks.convolution.deformable import deform_conv
from fdbr.ops.networks.convolution.products import conv, conv_transpose
from fdbr.ops.networks.convolution.unfolding import fold, local_conv, unfold
from fdbr.ops.networks.losses.binary import *
from fdbr.ops.networks.losses.classification import *
from fdbr.ops.networks.losses.covariances import *
from fdbr.ops.networks.losses.crf import *
from fdbr.ops.networks.losses.ctc import *
from fdbr.ops.networks.losses.embeddings import *
from fdbr.ops.networks.losses.likelihoods import *
from fdbr.ops.networks.losses.margins import *
from fdbr.ops.networks.losses.metrics import *
from fdbr.ops.networks.losses.regression import *
from fdbr.ops.networks.losses.sampled import *
from fdbr.ops.networks.noise.dropout import drop_path, dropout, spatial_dropout
from fdbr.ops.networks.noise.samples import *
from fdbr.ops.networks.normalization.decorrelation import decorrelated_batch_norm
from fdbr.ops.networks.normalization.rescaling import *
from fdbr.ops.networks.normalization.statistics import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from fdbr.ops.networks.one_hot import one_hot
from fdbr.ops.networks.pooling.adaptive import *
from fdbr.ops.networks.pooling.fractional import *
from fdbr.ops.networks.pooling.regions import *
from fdbr.ops.networks.pooling.unpooling import *
from fdbr.ops.networks.pooling.windowed import *
from fdbr.ops.networks.recurrent.cells import (
    gru_cell,
    lstm_cell,
    mgu_cell,
    rnn_relu_cell,
    rnn_tanh_cell,
)
from fdbr.ops.networks.recurrent.n_step import n_step_gru, n_step_lstm, n_step_rnn
from fdbr.ops.networks.recurrent.sequences import pad_sequence, transpose_sequence
from fdbr.ops.networks.recurrent.units import lstm, slstm, tree_lstm
from fdbr.ops.networks.resampling.grid_sampling import *
from fdbr.ops.networks.resampling.interpolation import *
from fdbr.ops.networks.resampling.shuffling import *
from fdbr.ops.padding import *
from fdbr.ops.pieces import *
from fdbr.ops.products import dot, einsum, inner, linear, matmul, outer, tensordot, vecdot
from fdbr.ops.reductions import *
from fdbr.ops.searching import *
from fdbr.ops.sets import *
from fdbr.ops.shape import *
from fdbr.ops.signal import *
from fdbr.ops.sorting import *
from fdbr.ops.special import (
    beta,
    betainc,
    betaln,
    cbrt,
    digamma,
    entr,
    erf,
    erfc,
    erfcinv,
    erfcx,
    erfinv,
    expit,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    i0,
    i0e,
    i1,
    i1e,
    kl_div,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    polygamma,
    rel_entr,
    sinc,
    xlog1py,
    xlogy,
    zeta,
)
from fdbr.ops.statistics import *

newaxis = None
__array_api_version__ = VERSIONS[-1]
del VERSIONS

from fdbr.ops import fft, linalg, sparse, special  # noqa: E402

__all__ = [
    name
    for name, member in list(globals().items())
    if name[0] != "_"
    and (not isinstance(member, _Module) or name in ("fft", "linalg", "sparse", "special"))
]
__dir__ = __all__.copy  # `dir` shows the public names alone
