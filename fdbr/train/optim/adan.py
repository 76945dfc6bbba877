"""Adan."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = ["ScaleByAdanState", "adan", "scale_by_adan"]


@public("fdbr.train.optim")
@frozen
class ScaleByAdanState:
    """The state of `scale_by_adan`.

    Attributes
    ----------
    m, v, n
        The running means of the gradients, of their differences, and of squares.
    g
        The last gradient.
    count
        The number of updates made.
    """

    m: Any
    v: Any
    n: Any
    g: Any
    count: int


@public_factory("fdbr.train.optim")
def scale_by_adan(
    b1: float = 0.98,
    b2: float = 0.92,
    b3: float = 0.99,
    eps: float = 1e-8,
    eps_root: float = 0.0,
) -> Optimizer:
    """Rescale gradients by Adan's three moments (Xie et al. 2022).

    Formula, with ``d`` the difference to the last gradient, zero at first::

        m = b1 * m + (1 - b1) * gradient
        v = b2 * v + (1 - b2) * d
        n = b3 * n + (1 - b3) * (gradient + (1 - b2) * d)**2
        update = (m / (1 - b1**t) + (1 - b2) * v / (1 - b2**t))
            / (sqrt(n / (1 - b3**t) + eps_root) + eps)

    Parameters
    ----------
    b1, b2, b3
        The decays, in [0, 1).
    eps, eps_root
        Numbers ≥ 0, added to the root and under it.

    >>> transformation = scale_by_adan()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    1.0
    """
    check_decays("scale_by_adan", b1=b1, b2=b2, b3=b3)
    check_positive("scale_by_adan", or_zero=True, eps=eps, eps_root=eps_root)

    def numbers(t: Any) -> Any:
        return 1 - b1**t, 1 - b2**t, 1 - b3**t, ops.where(t > 1, 1.0, 0.0)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        m, v, n, last = own
        difference = t[3] * (g - last)
        m = averaged(m, g, b1)
        v = averaged(v, difference, b2)
        n = averaged(n, square(g + (1 - b2) * difference), b3)
        first = m / t[0] + (1 - b2) / t[1] * v
        return first / (ops.sqrt(n / t[2] + eps_root) + eps), (m, v, n, g)

    return leafwise(
        "scale_by_adan",
        update,
        lambda p: (zeros(p),) * 4,
        state=ScaleByAdanState,
        numbers=numbers,
    )


@public_factory("fdbr.train.optim")
def adan(
    learning_rate: LearningRate,
    b1: float = 0.98,
    b2: float = 0.92,
    b3: float = 0.99,
    eps: float = 1e-8,
    eps_root: float = 1e-8,
    weight_decay: Any = 0.0,
    mask: Any = None,
) -> Optimizer:
    """Adan (Xie et al., *Adaptive Nesterov momentum algorithm*, 2022).

    It is `scale_by_adan`, weight decay (`add_decayed_weights`) and the learning rate.

    >>> optimizer = adan(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0), 0.0)[0]), 6)
    -0.1
    """
    return chain(
        scale_by_adan(b1, b2, b3, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
