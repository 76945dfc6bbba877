"""Messages do not print whole models."""

import numpy as np
import pytest

import fdbr
from fdbr.train import optim

BIG = {f"layer{i}": np.ones((50, 50)) for i in range(200)}
ADAM = optim.adamw(1e-3)
STATE = ADAM.init(BIG)
MISTAKES = {
    "state and parameters swapped": lambda: ADAM.update(BIG, BIG, STATE),
    "state and gradients swapped": lambda: ADAM.update(STATE, BIG, BIG),
    "updates that are a state": lambda: optim.apply_updates(BIG, STATE),
    "labels that are parameters": lambda: optim.partition({"a": ADAM}, BIG).init(BIG),
    "a learning rate": lambda: optim.sgd(BIG),
    "a rule's state": lambda: optim.leafwise(
        "f", lambda g, own, p, t: (g, BIG), lambda p: (p,)
    ).update(1.0, optim.LeafwiseState(0, (1.0,)), 1.0),
    "in_axes": lambda: fdbr.vmap(lambda p: p, in_axes=BIG)(BIG),
    "out_axes": lambda: fdbr.vmap(lambda p: p, out_axes=BIG)(BIG),
    "argnums": lambda: fdbr.grad(lambda p: p, argnums=BIG)(BIG),
    "a cotangent": lambda: fdbr.vjp(lambda p: p, BIG)[1](1.0),
    "a tangent": lambda: fdbr.jvp(lambda p: p, (BIG,), (1.0,)),
    "a tangent of linearize": lambda: fdbr.linearize(lambda p: p, BIG)[1](1.0),
    "trees": lambda: fdbr.tree.map(lambda a, b: a, BIG, {"x": 1}),
    "a carry of scan": lambda: fdbr.scan(lambda c, x: (c["layer1"], None), BIG, None, length=3),
    "a carry of while_loop": lambda: fdbr.while_loop(lambda c: True, lambda c: c["layer1"], BIG),
    "nothing to differentiate": lambda: fdbr.grad(lambda p: 1.0)(dict.fromkeys(BIG, 1)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_message_about_a_tree_is_short(mistake):
    with pytest.raises((TypeError, ValueError)) as caught:
        MISTAKES[mistake]()
    assert len(str(caught.value)) < 800
