"""The operations of networks, and special functions, which `fdbr.ops` loads at their first use.

They take as long to load as all others, and many programs do not use them.
"""

# mypy: implicit-reexport
# ruff: noqa: F401, F403

import fdbr.ops.special as special
from fdbr.ops.nn.activations.exponentials import log_softmax, logsumexp, relu, softmax
from fdbr.ops.nn.activations.gates import *
from fdbr.ops.nn.activations.nonlinearities import *
from fdbr.ops.nn.activations.rectifiers import *
from fdbr.ops.nn.attention.embedding import embed
from fdbr.ops.nn.attention.positions import alibi_bias, rotary_embedding, sinusoidal_embedding
from fdbr.ops.nn.attention.products import scaled_dot_product_attention
from fdbr.ops.nn.broadcasts import bias, bilinear, scale
from fdbr.ops.nn.convolution.channelwise import depthwise_conv, shift
from fdbr.ops.nn.convolution.deformable import deform_conv
from fdbr.ops.nn.convolution.products import conv, conv_transpose
from fdbr.ops.nn.convolution.unfolding import fold, local_conv, unfold
from fdbr.ops.nn.losses.binary import *
from fdbr.ops.nn.losses.classification import *
from fdbr.ops.nn.losses.covariances import *
from fdbr.ops.nn.losses.crf import *
from fdbr.ops.nn.losses.ctc import *
from fdbr.ops.nn.losses.embeddings import *
from fdbr.ops.nn.losses.likelihoods import *
from fdbr.ops.nn.losses.margins import *
from fdbr.ops.nn.losses.metrics import *
from fdbr.ops.nn.losses.regression import *
from fdbr.ops.nn.losses.sampled import *
from fdbr.ops.nn.noise.dropout import drop_path, dropout, spatial_dropout
from fdbr.ops.nn.noise.samples import *
from fdbr.ops.nn.normalization.decorrelation import decorrelated_batch_norm
from fdbr.ops.nn.normalization.rescaling import *
from fdbr.ops.nn.normalization.statistics import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from fdbr.ops.nn.one_hot import one_hot
from fdbr.ops.nn.pooling.adaptive import *
from fdbr.ops.nn.pooling.fractional import *
from fdbr.ops.nn.pooling.position_sensitive import *
from fdbr.ops.nn.pooling.regions import *
from fdbr.ops.nn.pooling.unpooling import *
from fdbr.ops.nn.pooling.windowed import *
from fdbr.ops.nn.recurrent.cells import gru_cell, lstm_cell, mgu_cell, rnn_relu_cell, rnn_tanh_cell
from fdbr.ops.nn.recurrent.n_step import n_step_gru, n_step_lstm, n_step_rnn
from fdbr.ops.nn.recurrent.sequences import pad_sequence, transpose_sequence
from fdbr.ops.nn.recurrent.units import lstm, slstm, tree_lstm
from fdbr.ops.nn.resampling.grid_sampling import *
from fdbr.ops.nn.resampling.interpolation import *
from fdbr.ops.nn.resampling.shuffling import *
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
