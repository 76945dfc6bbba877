"""Primitives that programs, passes and back ends refer to directly.

Properties of whole classes of operations follow from their declarations: see `Facts`.
"""

from fdbr import ops  # noqa: F401, which declares most of them
from fdbr.core.primitive import registry
from fdbr.ops.nn.activations import exponentials  # noqa: F401, and these the others
from fdbr.ops.nn.convolution import products  # noqa: F401
from fdbr.ops.nn.losses import softmax_losses  # noqa: F401
from fdbr.ops.nn.normalization import standardizing  # noqa: F401
from fdbr.ops.nn.pooling import windowed  # noqa: F401

ADD = registry["add"]
ADD_ROWS = registry["add_rows"]
AFFINE = registry["affine"]
ALL = registry["all"]
ANY = registry["any"]
ARGMAX = registry["argmax"]
ARGMIN = registry["argmin"]
ASTYPE_EXACT = registry["astype_exact"]
ASTYPE_INEXACT = registry["astype_inexact"]
BROADCAST_TO = registry["broadcast_to"]
CEIL = registry["ceil"]
CHOLESKY = registry["cholesky"]
COFACTORS = registry["cofactors"]
CONCAT = registry["concat"]
CONV = registry["conv"]
CONV_BIASED = registry["conv_biased"]
CONV_INPUT = registry["conv_input"]
CONV_KERNEL = registry["conv_kernel"]
DET = registry["det"]
DIAGONAL = registry["diagonal"]
DIVIDE = registry["divide"]
EMBED_DIAGONAL = registry["embed_diagonal"]
EQUAL = registry["equal"]
ERASE = registry["erase"]
EUCLIDEAN = registry["euclidean"]
FLIP = registry["flip"]
FLOOR = registry["floor"]
FLOOR_DIVIDE = registry["floor_divide"]
FULL_LIKE = registry["full_like"]
GATHER = registry["gather"]
GREATER = registry["greater"]
GREATER_EQUAL = registry["greater_equal"]
HALF_TRIANGLE = registry["half_triangle"]
INCREASE = registry["increase"]
INTEGER_POWER = registry["integer_power"]
INV = registry["inv"]
LESS = registry["less"]
LESS_EQUAL = registry["less_equal"]
MATMUL = registry["matmul"]
MATMUL_TRANSPOSED = registry["matmul_transposed"]
MATRIX_TRANSPOSE = registry["matrix_transpose"]
MAX = registry["max"]
MAXIMUM = registry["maximum"]
MAX_WINDOWS = registry["max_windows"]
MEAN = registry["mean"]
MIN = registry["min"]
MINIMUM = registry["minimum"]
MULTIPLY = registry["multiply"]
NEGATIVE = registry["negative"]
NOT_EQUAL = registry["not_equal"]
PAD_ZEROS = registry["pad_zeros"]
PERMUTE = registry["permute"]
POSITIVE = registry["positive"]
POWER = registry["power"]
REAL_ABS = registry["real_abs"]
RECIPROCAL = registry["reciprocal"]
REDUCE = registry["reduce"]
RELU = registry["relu"]
REMAINDER = registry["remainder"]
REPLACE = registry["replace"]
RESCALE = registry["rescale"]
RESHAPE = registry["reshape"]
ROUND = registry["round"]
SCATTER = registry["scatter"]
SLICE = registry["slice"]
SOLVE = registry["solve"]
SQUARE = registry["square"]
STACK = registry["stack"]
STANDARDIZE = registry["standardize"]
SUBSTITUTE = registry["substitute"]
SUBTRACT = registry["subtract"]
SUBTRACT_AT_LABELS = registry["subtract_at_labels"]
SUM = registry["sum"]
SUM_OF_ROWS = registry["sum_of_rows"]
TO_WINNERS = registry["to_winners"]
TRIANGLE = registry["triangle"]
TRUNC = registry["trunc"]
UNSLICE = registry["unslice"]
WHERE = registry["where"]
WINDOW_WINNERS = registry["window_winners"]

COMPARISONS = frozenset({EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, NOT_EQUAL})
"""The operations of Python's comparison operators."""

PRODUCTS = frozenset({MATMUL, MATMUL_TRANSPOSED, AFFINE})
"""Matrix products."""

VIEWS = frozenset({SLICE, RESHAPE, PERMUTE, MATRIX_TRANSPOSE, BROADCAST_TO})
"""Operations whose results are views of their operands."""

JOINS = frozenset({CONCAT, STACK})
"""Operations that concatenate arrays."""

EMBEDDINGS = frozenset({UNSLICE, PAD_ZEROS})
"""Operations that embed an array into zeros."""
