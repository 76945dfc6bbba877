"""Operations on arrays, raw or traced, under the names of the Python Array API standard.

On raw arrays they cost what their array module costs; inside a transformation they are
differentiated.  Functions of deep learning stand beside those of the standard.
"""

from math import e, inf, nan, pi

from fdbr.ops.activation import log_softmax, logsumexp, relu, sigmoid, softmax
from fdbr.ops.arithmetic import *
from fdbr.ops.comparison import *
from fdbr.ops.complex_parts import conj, imag, real
from fdbr.ops.creation import *
from fdbr.ops.dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from fdbr.ops.exponential import *
from fdbr.ops.indexing import at, getitem, take, take_along_axis
from fdbr.ops.losses import accuracy, mean_squared_error, softmax_cross_entropy
from fdbr.ops.products import dot, einsum, inner, linear, matmul, outer, tensordot, vecdot
from fdbr.ops.reductions import *
from fdbr.ops.shape import *
from fdbr.ops.trigonometric import *

newaxis = None

from fdbr.ops import methods, numpy_protocol  # noqa: E402
