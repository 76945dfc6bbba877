"""What does not fit is an error that names the operation, and the shapes and dtypes it got."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

M = np.ones((2, 3))
V = np.ones(3)
S = np.array(1.0)

ERRORS = [
    # elementwise
    (lambda x: ops.add(x, np.ones(2)), ValueError, "fdbr.ops.add float64[2,3] float64[2]"),
    (lambda x: x * np.ones((4, 3)), ValueError, "fdbr.ops.multiply float64[2,3] float64[4,3]"),
    (lambda x: np.maximum(x, np.ones(4)), ValueError, "fdbr.ops.maximum float64[2,3] float64[4]"),
    (lambda x: ops.where(x > 0, x, np.ones(2)), ValueError, "fdbr.ops.where bool[2,3] float64[2]"),
    (lambda x: ops.bitwise_and(x, 1), TypeError, "fdbr.ops.bitwise_and float64[2,3] int 1"),
    (lambda x: ops.bitwise_invert(x), TypeError, "fdbr.ops.bitwise_invert float64[2,3]"),
    (lambda x: ops.maximum(x, "a"), TypeError, "fdbr.ops.maximum float64[2,3] str"),
    # products
    (
        lambda x: ops.matmul(x, x),
        ValueError,
        "fdbr.ops.matmul x float64[2,3] y float64[2,3] last axis",
    ),
    (lambda x: x @ np.ones(2), ValueError, "fdbr.ops.matmul x float64[2,3] y float64[2]"),
    (lambda x: ops.matmul(x, 2.0), ValueError, "fdbr.ops.matmul y float64[]"),
    (lambda x: ops.matmul(np.ones((4, 2, 3)), np.stack([x.T] * 3)), ValueError, "fdbr.ops.matmul"),
    (lambda x: ops.linear(x, np.ones((4, 2))), ValueError, "fdbr.ops.linear weight float64[4,2]"),
    (lambda x: ops.linear(x, np.ones(3)), ValueError, "fdbr.ops.linear weight float64[3] a matrix"),
    (
        lambda x: ops.linear(x, M, V),
        ValueError,
        "fdbr.ops.linear bias float64[3] must have shape (2,)",
    ),
    (
        lambda x: ops.tensordot(x, x, axes=1),
        ValueError,
        "fdbr.ops.tensordot float64[2,3] equally long",
    ),
    (lambda x: ops.tensordot(x, x, axes=3), ValueError, "fdbr.ops.tensordot axes=3"),
    (
        lambda x: ops.tensordot(x, x, axes=(5, 0)),
        ValueError,
        "fdbr.ops.tensordot axis 5 out of range",
    ),
    (lambda x: ops.dot(x, x), ValueError, "equally long float64[2,3]"),
    (lambda x: ops.vecdot(x, np.ones((2, 2))), ValueError, "fdbr.ops.vecdot float64[2,2] axis -1"),
    (lambda x: ops.einsum("ij,jk", x, x), ValueError, "fdbr.ops.einsum 'ij,jk' 'j' 3 2 long"),
    (lambda x: ops.einsum("ij", x, x), ValueError, "fdbr.ops.einsum 1 groups for 2 operands"),
    (lambda x: ops.einsum("ijk", x), ValueError, "fdbr.ops.einsum 'ijk' float64[2,3] dimensions"),
    (lambda x: ops.einsum("ij->ik", x), ValueError, "fdbr.ops.einsum the result float64[2,3]"),
    (lambda x: ops.einsum("ij->ii", x), ValueError, "fdbr.ops.einsum the result repeats"),
    (lambda x: ops.einsum("i1", x), ValueError, "fdbr.ops.einsum only letters"),
    (lambda x: ops.einsum("ii", x), ValueError, "fdbr.ops.einsum 'i' lengths 2 and 3"),
    (lambda x: ops.einsum(x, x), TypeError, "fdbr.ops.einsum the subscripts, a string"),
    # axes
    (lambda x: ops.sum(x, axis=2), ValueError, "fdbr.ops.sum axis 2 out of range 2 dimensions"),
    (lambda x: ops.mean(x, axis=(0, -2)), ValueError, "fdbr.ops.mean (0, -2) twice"),
    (lambda x: x.max(axis=5), ValueError, "fdbr.ops.max axis 5"),
    (lambda x: ops.prod(x, axis=-3), ValueError, "fdbr.ops.prod axis -3"),
    (lambda x: ops.softmax(x, axis=2), ValueError, "fdbr.ops.softmax axis 2"),
    (lambda x: ops.logsumexp(x, axis=2), ValueError, "fdbr.ops.logsumexp axis 2"),
    (
        lambda x: ops.cumulative_sum(x),
        ValueError,
        "fdbr.ops.cumulative_sum axis must be given (2, 3)",
    ),
    (lambda x: ops.cumulative_prod(x, axis=2), ValueError, "fdbr.ops.cumulative_prod axis 2"),
    (lambda x: ops.sum(x, axis=0.5), TypeError, "float"),
    # reductions of nothing
    (lambda x: ops.max(x[:0]), ValueError, "fdbr.ops.max float64[0,3]"),
    (lambda x: ops.min(x[:, :0], axis=1), ValueError, "fdbr.ops.min float64[2,0]"),
    (lambda x: ops.argmax(x[:0]), ValueError, "fdbr.ops.argmax float64[0,3]"),
    # shapes
    (lambda x: ops.reshape(x, (4, 2)), ValueError, "fdbr.ops.reshape (4,2) float64[2,3]"),
    (lambda x: ops.permute_dims(x, (0,)), ValueError, "fdbr.ops.permute_dims (0,) 2 axes"),
    (lambda x: ops.permute_dims(x, (0, 0)), ValueError, "fdbr.ops.permute_dims twice"),
    (lambda x: ops.matrix_transpose(x[0]), ValueError, "fdbr.ops.matrix_transpose (3,)"),
    (lambda x: ops.swapaxes(x, 0, 2), ValueError, "fdbr.ops.swapaxes axis 2"),
    (lambda x: ops.moveaxis(x, (0, 1), 0), ValueError, "fdbr.ops.moveaxis 2 source axes 1"),
    (lambda x: ops.broadcast_to(x, (3, 3)), ValueError, "fdbr.ops.broadcast_to (2, 3) (3, 3)"),
    (
        lambda x: ops.broadcast_arrays(x, np.ones(2)),
        ValueError,
        "fdbr.ops.broadcast_arrays (2, 3) (2,)",
    ),
    (lambda x: ops.expand_dims(x, axis=3), ValueError, "fdbr.ops.expand_dims axis 3"),
    (lambda x: ops.squeeze(x, axis=0), ValueError, "fdbr.ops.squeeze (2, 3) axis 0"),
    (lambda x: ops.flip(x, axis=2), ValueError, "fdbr.ops.flip axis 2"),
    (lambda x: ops.roll(x, (1, 2), axis=0), ValueError, "fdbr.ops.roll 2 shifts for 1 axes"),
    (lambda x: ops.unstack(x, axis=2), ValueError, "fdbr.ops.unstack axis 2"),
    (lambda x: ops.diagonal(x[0]), ValueError, "fdbr.ops.diagonal (3,)"),
    (lambda x: ops.concat([]), ValueError, "fdbr.ops.concat no array"),
    (lambda x: ops.concat([x, V]), ValueError, "fdbr.ops.concat float64[2,3] float64[3]"),
    (lambda x: ops.concat([x, M[:, :2]]), ValueError, "fdbr.ops.concat float64[2,3] float64[2,2]"),
    (lambda x: ops.concat([S, S]), ValueError, "fdbr.ops.concat axis 0 0 dimensions"),
    (lambda x: ops.stack([]), ValueError, "fdbr.ops.stack no array"),
    (lambda x: ops.stack([x, V]), ValueError, "fdbr.ops.stack float64[2,3] float64[3]"),
    (lambda x: ops.take(x, np.array([0, 3]), axis=1), IndexError, "index 3 out of bounds"),
    (lambda x: ops.take(x, np.array([0.0])), IndexError, "integer float64[1]"),
    (
        lambda x: ops.take_along_axis(x, np.array([0])),
        ValueError,
        "fdbr.ops.take_along_axis int64[1]",
    ),
    # writing
    (lambda x: ops.at(x)[0].set(np.ones(2)), ValueError, "fdbr.ops.at set float64[2] shape (3,)"),
    (lambda x: ops.at(x)[0].add(np.ones((2, 3))), ValueError, "fdbr.ops.at add float64[2,3] (3,)"),
    (lambda x: ops.at(x)[0].set(1j), TypeError, "fdbr.ops.at complex float64[2,3]"),
    # losses
    (
        lambda x: ops.mean_squared_error(x, V),
        ValueError,
        "fdbr.ops.mean_squared_error float64[2,3] float64[3]",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([0, 3])),
        ValueError,
        "fdbr.ops.softmax_cross_entropy labels from 0 to 3 3 classes",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([-1, 0])),
        ValueError,
        "from -1 to 0 ignore_label",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([-1, 5]), ignore_label=-1),
        ValueError,
        "to 5",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([0])),
        ValueError,
        "labels int64[1] logits float64[2,3] the shape (2,)",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, M[:, :2]),
        ValueError,
        "probabilities float64[2,2] float64[2,3]",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([True, False])),
        TypeError,
        "integers bool[2]",
    ),
    (lambda x: ops.softmax_cross_entropy(S, np.array(0)), TypeError, "logits float64[]"),
    (
        lambda x: ops.softmax_cross_entropy(np.array([[1, 2]]), np.array([0])),
        TypeError,
        "logits int64[1,2]",
    ),
    (
        lambda x: ops.softmax_cross_entropy(x, np.array([0, 1]), reduction="max"),
        ValueError,
        "'max' 'none'",
    ),
    (lambda x: ops.softmax_cross_entropy(x, np.array([0, 1]), axis=2), ValueError, "axis 2"),
    (
        lambda x: ops.accuracy(x, np.array([0])),
        ValueError,
        "fdbr.ops.accuracy int64[1] float64[2,3]",
    ),
    # new arrays
    (
        lambda x: ops.asarray(M, dtype=np.float32, copy=False),
        ValueError,
        "fdbr.ops.asarray copy=False",
    ),
]


@pytest.mark.parametrize(("f", "kind", "words"), ERRORS, ids=[words for _, _, words in ERRORS])
def test_bad_operands_are_named(f, kind, words):
    with pytest.raises(kind) as caught:
        fdbr.vjp(f, M)
    message = str(caught.value)
    for word in words.split():
        assert word in message, message


@pytest.mark.parametrize(("f", "kind", "words"), ERRORS, ids=[words for _, _, words in ERRORS])
def test_bad_operands_are_errors_outside_of_transformations_too(f, kind, words):
    with pytest.raises(kind):
        f(M)


def test_a_traced_value_is_not_cut_off_by_writing_it_into_an_integer_array():
    with pytest.raises(TypeError, match=r"fdbr.ops.at: set of traced .* in int64\[2\]"):
        fdbr.vjp(lambda x: ops.at(np.zeros(2, dtype=int))[0].set(x[0, 0]), M)


def test_an_error_of_the_array_module_keeps_its_own_message_and_cause():
    with pytest.raises(ValueError, match=r"could not be broadcast.* \(operands: ") as caught:
        ops.add(M, np.ones(2))
    assert isinstance(caught.value.__cause__, ValueError)


def test_operands_have_no_names():
    with pytest.raises(TypeError):
        ops.add(x=1.0, y=2.0)
