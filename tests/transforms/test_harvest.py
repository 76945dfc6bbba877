"""Values from deep inside: `mark` and `harvest`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops, random


@fdbr.frozen
class Block:
    linear: nn.Linear

    def __call__(self, x):
        return fdbr.mark("h", np.tanh(self.linear(x)))


@fdbr.frozen
class Net:
    blocks: tuple[Block, ...]

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


KEYS = random.split(random.key(0), 3)
NET = Net(tuple(Block(nn.Linear.init(key, 3, 3, dtype=np.float64)) for key in KEYS[:2]))
X = random.normal(KEYS[2], (4, 3), dtype=np.float64)
NAMES = ["blocks[0]/h", "blocks[1]/h"]
jitted = fdbr.jit(lambda net, x: net(x))


def loss(net, x):
    return ops.sum(net(x) ** 2)


def sums(transformed):
    return lambda net, x: ops.sum(transformed(net, x) ** 2)


def call(net, x):
    return net(x)


def rows(net, x):
    return fdbr.scan(lambda carry, row: (carry, net(row)), 0.0, x)[1]


def rows_in_segments(net, x):
    return fdbr.scan(lambda carry, row: (carry, net(row)), 0.0, x, checkpoint=3)[1]


def iterations(net, x):
    def iteration(i, total):
        return total + ops.sum(net(x[i]) ** 2)

    return fdbr.fori_loop(0, 4, iteration, 0.0)


FORWARD = {
    "itself": call,
    "vmap": fdbr.vmap(call, (None, 0)),
    "checkpoint": fdbr.checkpoint(call),
    "checkpoint of checkpoint": fdbr.checkpoint(lambda net, x: fdbr.checkpoint(net)(x)),
    "scan": rows,
    "scan in segments": rows_in_segments,
    "jit": jitted,
    "jit of scan": fdbr.jit(rows),
    "vmap of jit": fdbr.vmap(jitted, (None, 0)),
    "vmap of scan": lambda net, x: fdbr.vmap(rows, (None, 0))(net, x[:, None])[:, 0],
}
BACKWARD = {
    **{f"grad of {name}": fdbr.grad(sums(f)) for name, f in FORWARD.items()},
    "vjp": lambda net, x: fdbr.vjp(lambda net: loss(net, x), net)[1](1.0),
    "jit of grad": fdbr.jit(fdbr.grad(loss)),
    "jit of grad of scan": fdbr.jit(fdbr.grad(sums(rows))),
    "checkpoint of grad": fdbr.checkpoint(fdbr.grad(loss)),
    "vmap of grad": fdbr.vmap(fdbr.grad(loss), (None, 0)),
    "scan of grad": lambda net, x: fdbr.scan(lambda c, r: (c, fdbr.grad(loss)(net, r)), 0.0, x),
    "grad of fori_loop": fdbr.grad(iterations),
}
ASIDE = {
    "jvp": lambda net, x: fdbr.jvp(net, (x,), (x,)),
    "jacfwd": lambda net, x: fdbr.jacfwd(net)(x),
    "jacrev": lambda net, x: fdbr.jacrev(net)(x),
    "linearize": lambda net, x: fdbr.linearize(net, x),
    "hvp": lambda net, x: fdbr.hvp(lambda x: loss(net, x), (x,), (x,)),
    "hessian": lambda net, x: fdbr.hessian(lambda x: loss(net, x))(x),
}


def _expected():
    first = np.tanh(NET.blocks[0].linear(X))
    second = np.tanh(NET.blocks[1].linear(first))
    behind = fdbr.grad(lambda h: ops.sum(np.tanh(NET.blocks[1].linear(h)) ** 2))(first)
    values = dict(zip(NAMES, (first, second), strict=True))
    return values, dict(zip(NAMES, (behind, 2 * second), strict=True))


VALUES, COTANGENTS = _expected()


def same(found, expected):
    shaped = {name: np.reshape(value, (4, 3)) for name, value in found.items()}
    assert list(shaped) == list(expected)
    for name, value in expected.items():
        fdbr.testing.assert_allclose(shaped[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD, *ASIDE])
def test_every_transformation_hands_out_the_values_that_were_marked_inside(name):
    f = {**FORWARD, **BACKWARD, **ASIDE}[name]
    if name == "grad of fori_loop":  # whose marks have the turns as rows
        assert fdbr.harvest(f)(NET, X)[1]["blocks[0]/h"].shape == (4, 3)
    for harvested in (fdbr.harvest(f), fdbr.jit(fdbr.harvest(f))):
        for _ in range(2):
            same(harvested(NET, X)[1], VALUES)


@pytest.mark.parametrize("name", BACKWARD)
def test_every_transformation_hands_out_the_cotangents_of_marked_values(name):
    f = BACKWARD[name]
    for harvested in (
        fdbr.harvest(f, cotangents=True),
        fdbr.jit(fdbr.harvest(f, cotangents=True)),
    ):
        out, values, cotangents = harvested(NET, X)
        same(values, VALUES)
        same(cotangents, COTANGENTS)
        fdbr.testing.assert_allclose(out, f(NET, X), rtol=1e-12)


@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD, *ASIDE])
def test_harvest_changes_no_result(name):
    f = {**FORWARD, **BACKWARD, **ASIDE}[name]
    out, expected = fdbr.harvest(f)(NET, X)[0], f(NET, X)
    if name != "linearize":
        fdbr.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_marked_values_are_differentiated_like_any_other_result():
    def penalty(net):
        _, marks = fdbr.harvest(fdbr.checkpoint(net))(X)
        return ops.sum(marks["blocks[0]/h"] ** 2)

    def plainly(net):
        return ops.sum(net.blocks[0](X) ** 2)

    found, expected = fdbr.grad(penalty)(NET), fdbr.grad(plainly)(NET)
    fdbr.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mark_alone_is_the_very_same_value():
    value = {"a": np.zeros(2)}
    assert fdbr.mark("v", value) is value


def test_a_value_may_be_a_tree_and_a_name_may_come_again():
    def f(x):
        fdbr.mark("pair", (x, {"twice": 2 * x}))
        return fdbr.mark("pair", x)

    assert fdbr.harvest(f)(3.0)[1] == {"pair": (3.0, {"twice": 6.0}), "pair#1": 3.0}


def test_harvests_nest_and_the_inner_one_keeps_what_it_finds():
    def f(x):
        _, inner = fdbr.harvest(lambda x: fdbr.mark("a", x))(x)
        return fdbr.mark("b", inner["a"] + 1)

    assert fdbr.harvest(f)(1.0) == (2.0, {"b": 2.0})


def test_examples_that_take_different_paths_give_their_marks_in_order():
    def f(x):
        return fdbr.mark("y", x * 2 if x > 0 else x - 1)

    _, marks = fdbr.harvest(fdbr.vmap(f))(np.array([1.0, -1.0, 2.0]))
    assert marks["y"].tolist() == [2.0, -2.0, 4.0]


def test_cotangents_of_examples_that_take_different_paths_are_refused():
    def f(x):
        return fdbr.mark("y", x * 2 if x > 0 else x - 1)

    summed = fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x)))
    with pytest.raises(ValueError, match="take different paths"):
        fdbr.harvest(summed, cotangents=True)(np.array([1.0, -1.0]))
    each = fdbr.harvest(fdbr.vmap(fdbr.grad(f)), cotangents=True)(np.array([1.0, -1.0]))
    assert each[2]["y"].tolist() == [1.0, 1.0]


def test_what_no_backward_pass_reaches_has_no_cotangent():
    def f(x):
        fdbr.mark("aside", x * 3)
        return fdbr.mark("y", x * 2)

    _, _, derivatives = fdbr.harvest(fdbr.grad(f), cotangents=True)(1.0)
    assert derivatives == {"aside": None, "y": 1.0}
    assert fdbr.harvest(f, cotangents=True)(1.0)[2] == {"aside": None, "y": None}


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=4))
def test_the_cotangent_of_a_mark_is_the_derivative_by_what_is_added_there(values):
    x = np.array(values)

    def f(x, shift=0.0):
        y = fdbr.mark("y", np.sin(x) + shift)
        return ops.sum(y * x + np.exp(y))

    _, _, derivatives = fdbr.harvest(fdbr.grad(f), cotangents=True)(x)
    expected = fdbr.grad(lambda shift: f(x, shift))(np.zeros_like(x))
    fdbr.testing.assert_allclose(derivatives["y"], expected, rtol=1e-12)


def test_several_backward_passes_add_up():
    def f(x):
        _, pullback = fdbr.vjp(lambda x: fdbr.mark("y", x * 2) ** 2, x)
        return pullback(1.0)[0] + pullback(2.0)[0]

    assert fdbr.harvest(f, cotangents=True)(1.0)[2]["y"] == 3 * 4.0


def test_harvested_values_are_read_only():
    _, marks = fdbr.harvest(lambda x: fdbr.mark("y", x + 1))(np.zeros(3))
    assert not marks["y"].flags.writeable


def test_a_mark_in_a_while_loop_is_refused_only_where_it_is_collected():
    def f(x):
        return fdbr.while_loop(lambda v: v < 10, lambda v: fdbr.mark("v", v * 2), x)

    assert f(1.0) == 16.0
    with pytest.raises(ValueError, match=r"'v' is marked in fdbr\.while_loop"):
        fdbr.harvest(f)(1.0)


def test_cotangents_for_each_row_of_a_jacobian_are_refused():
    with pytest.raises(ValueError, match=r"represents many values in fdbr\.vmap"):
        fdbr.harvest(fdbr.jacrev(lambda x: fdbr.mark("y", x * 2)), cotangents=True)(X[0])


def test_names_must_be_strings():
    with pytest.raises(TypeError, match=r"fdbr\.mark: name must be a string"):
        fdbr.mark(3, 1.0)
    with pytest.raises(TypeError, match=r"fdbr\.harvest: cotangents must be True or False"):
        fdbr.harvest(loss, cotangents="yes")


@pytest.mark.parametrize("paths", [["blocks[1]"], ["blocks[0]", "blocks[0].linear"]])
def test_layers_mark_their_outputs_by_their_paths(paths):
    _, marks = fdbr.harvest(nn.mark_layers(NET, *paths))(X)
    expected = {
        "blocks[0].linear": NET.blocks[0].linear(X),
        "blocks[0]": VALUES[NAMES[0]],
        "blocks[1]": VALUES[NAMES[1]],
    }
    found = {name: value for name, value in marks.items() if "/" not in name}
    assert sorted(found) == sorted(paths)
    for path in paths:
        fdbr.testing.assert_allclose(found[path], expected[path])


def test_a_model_with_marked_layers_trains_as_before():
    model = nn.Sequential(
        nn.Linear.init(KEYS[0], 3, 4), nn.BatchNorm.init(KEYS[0], 4), nn.Dropout(0.5)
    )
    x = X.astype(np.float32)
    out, successor = model.train(x, key=KEYS[1])
    marked, (found, same_one) = None, nn.mark_layers(model).train(x, key=KEYS[1])
    (found, marked), marks = fdbr.harvest(nn.mark_layers(model).train)(x, key=KEYS[1])
    fdbr.testing.assert_allclose(found, out)
    assert sorted(marks) == ["layers[0]", "layers[1]", "layers[2]"]
    for one in (marked, same_one):
        fdbr.testing.assert_allclose(fdbr.tree.leaves(one), fdbr.tree.leaves(successor))


def test_a_gradient_of_features_has_the_structure_of_the_model():
    def feature(net):
        _, marks = fdbr.harvest(nn.mark_layers(net, "blocks[0]"))(X)
        return ops.sum(marks["blocks[0]"] ** 2)

    expected = fdbr.grad(lambda net: ops.sum(net.blocks[0](X) ** 2))(NET)
    fdbr.testing.assert_allclose(fdbr.grad(feature)(NET), expected)


def test_a_path_without_a_layer_is_named():
    with pytest.raises(ValueError, match=r"Net has no layer at block; its layers are at blocks"):
        nn.mark_layers(NET, "block")
    with pytest.raises(ValueError, match="no layer of Net is chosen"):
        nn.mark_layers(NET, where=lambda path, layer: False)
