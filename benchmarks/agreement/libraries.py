"""What the libraries call the operations of random programs, and how each differentiates.

`load` makes a `Library`: a namespace of operations, and ``derivatives(program)``, which gives the
value, the derivative along a vector, the gradient and the Hessian-vector product of a program's
loss.
"""

import functools
import importlib
import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

import fdbr
from fdbr import ops

__all__ = ["FDBR", "LIBRARIES", "Library", "Results", "itself", "load"]

Results = dict[str, list[Any]]
"""Arrays by name: ``value``, ``tangent``, ``gradient`` and ``hvp``."""

Derivatives = Callable[[Any], Results]
"""From a `Program` to its derivatives."""


@attrs.frozen
class Library:
    """A library that takes part."""

    version: str
    derivatives: Derivatives


class Names:
    """The names of a module, and what is added to them."""

    def __init__(self, *modules: Any, **more: Any) -> None:
        self._modules = modules
        self.__dict__.update(more)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{name!r} in {self._modules}")


def _results(value: Any, tangent: Any, gradient: Any, product: Any) -> Results:
    return {
        "value": [np.asarray(value)],
        "tangent": [np.asarray(tangent)],
        "gradient": [np.asarray(part) for part in gradient],
        "hvp": [np.asarray(part) for part in product],
    }


# --- fdbr ---------------------------------------------------------------------------

FDBR = Names(
    ops,
    array=np.asarray,
    index=np.asarray,
    at_set=lambda x, key, y: ops.at(x)[key].set(y),
    at_add=lambda x, key, y: ops.at(x)[key].add(y),
    abs2=lambda z: ops.real(z * ops.conj(z)),
    expm=ops.linalg.expm,
    solve_triangular=lambda a, b: ops.linalg.solve_triangular(a, b, lower=True),
)


def _fdbr_loss(program: Any) -> Callable[..., Any]:
    return lambda *inputs: program.loss(FDBR, inputs)


def _fdbr(program: Any) -> Results:
    loss = _fdbr_loss(program)
    every = tuple(range(len(program.inputs)))
    value, gradient = fdbr.value_and_grad(loss, every)(*program.inputs)
    _, tangent = fdbr.jvp(loss, program.inputs, program.vectors)
    _, product = fdbr.jvp(fdbr.grad(loss, every), program.inputs, program.vectors)
    return _results(value, tangent, gradient, product)


def itself(program: Any) -> Results:
    """The same by other compositions of fdbr's transformations, in batches of two.

    The gradient is that of a batch, and the product the gradient of the gradient's product with
    the vectors.
    """
    loss = _fdbr_loss(program)
    every = tuple(range(len(program.inputs)))
    batch, vectors = ([np.stack([x, x]) for x in xs] for xs in (program.inputs, program.vectors))
    (value, _), (tangent, _) = fdbr.jvp(fdbr.vmap(loss), batch, vectors)
    gradient = fdbr.grad(lambda *xs: ops.sum(fdbr.vmap(loss)(*xs)), every)(*batch)

    def slope(inputs: Any, vectors: Any) -> Any:
        parts = fdbr.grad(loss, every)(*inputs)
        return sum(ops.sum(g * v) for g, v in zip(parts, vectors, strict=True))

    product = fdbr.vmap(fdbr.grad(slope))(tuple(batch), tuple(vectors))
    return _results(value, tangent, [g[1] for g in gradient], [h[0] for h in product])


# --- JAX ----------------------------------------------------------------------------


# Compiled by XLA 0.10, FFT refuses layouts that XLA chose itself; and the derivative of an extreme,
# whose operand is computed a second time with other roundings, finds it nowhere and is NaN.
_NOT_COMPILED = r"fft|\b(max|min) axis"
# Each program is compiled for a single run.
_COMPILE_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def _jax() -> Derivatives:
    jax = importlib.import_module("jax")
    os.environ.setdefault("XLA_FLAGS", _COMPILE_FAST)  # read when JAX first computes
    jax.config.update("jax_enable_x64", True)
    jnp = importlib.import_module("jax.numpy")
    special, linalg = (importlib.import_module(f"jax.scipy.{n}") for n in ("special", "linalg"))
    names = Names(
        jnp,
        jax.nn,
        special,
        array=jnp.asarray,
        index=jnp.asarray,
        at_set=lambda x, key, y: x.at[key].set(y),
        at_add=lambda x, key, y: x.at[key].add(y),
        abs2=lambda z: (z * z.conj()).real,
        cumulative_sum=jnp.cumsum,
        cumulative_prod=jnp.cumprod,
        diagonal=lambda x: jnp.diagonal(x, axis1=-2, axis2=-1),
        expm=linalg.expm,
        solve_triangular=lambda a, b: linalg.solve_triangular(a, b, lower=True),
        segment_sum=jax.ops.segment_sum,
        conv=lambda x, w, padding: jax.lax.conv_general_dilated(x, w, (1,), [(padding, padding)]),
        max_pool=lambda x, size, stride: jnp.maximum(x[..., :-1], x[..., 1:]),
        avg_pool=lambda x, size, stride: (x[..., :-1] + x[..., 1:]) / 2,
    )

    def derivatives(program: Any) -> Results:
        every = tuple(range(len(program.inputs)))
        both = jax.value_and_grad(lambda *xs: program.loss(names, xs), every)
        inputs, vectors = (tuple(map(jnp.asarray, xs)) for xs in (program.inputs, program.vectors))
        run = functools.partial(jax.jvp, both)
        if not re.search(_NOT_COMPILED, str(program)):
            run = jax.jit(run)
        (value, gradient), (tangent, product) = run(inputs, vectors)
        if program.seed % 25 == 24:
            jax.clear_caches()  # compiled programs are many, and none is used again
        return _results(value, tangent, gradient, product)

    return derivatives


# --- PyTorch ------------------------------------------------------------------------


def _torch_names(torch: Any) -> Names:
    nn = torch.nn.functional
    of = torch.from_numpy

    def take_along_axis(x: Any, index: Any, axis: int) -> Any:
        return torch.take_along_dim(x, index, dim=axis)

    def at_add(x: Any, key: Any, y: Any) -> Any:
        return x.index_put((torch.tensor(key),), y, accumulate=True)

    def segment_sum(x: Any, index: Any, count: int) -> Any:
        return x.new_zeros((count, *x.shape[1:])).index_add(0, index, x)

    linalg = SimpleNamespace(
        **{name: getattr(torch.linalg, name) for name in dir(torch.linalg) if name[0] != "_"}
        | {"vector_norm": lambda x, axis: torch.linalg.vector_norm(x, dim=axis)}
    )
    fft = SimpleNamespace(
        fft=lambda x, axis: torch.fft.fft(x, dim=axis),
        rfft=lambda x, axis: torch.fft.rfft(x, dim=axis),
        irfft=lambda x, n, axis: torch.fft.irfft(x, n=n, dim=axis),
    )
    return Names(
        torch,
        array=lambda x: of(np.asarray(x, dtype=np.float64)),
        index=lambda i: of(np.asarray(i)),
        at_set=lambda x, key, y: x.index_put((torch.tensor(key),), y),
        at_add=at_add,
        abs2=lambda z: (z * z.conj()).real,
        linalg=linalg,
        fft=fft,
        expm=torch.linalg.matrix_exp,
        solve_triangular=lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        softplus=nn.softplus,
        silu=nn.silu,
        softmax=lambda x, axis: torch.softmax(x, dim=axis),
        log_softmax=lambda x, axis: torch.log_softmax(x, dim=axis),
        logsumexp=lambda x, axis: torch.logsumexp(x, dim=axis),
        max=lambda x, axis: torch.amax(x, dim=axis),
        min=lambda x, axis, keepdims: torch.amin(x, dim=axis, keepdim=keepdims),
        var=lambda x, axis, keepdims=False: torch.var(x, dim=axis, correction=0, keepdim=keepdims),
        sort=lambda x, axis: torch.sort(x, dim=axis).values,
        cumulative_sum=lambda x, axis: torch.cumsum(x, dim=axis),
        cumulative_prod=lambda x, axis: torch.cumprod(x, dim=axis),
        permute_dims=torch.permute,
        matrix_transpose=lambda x: x.mT,
        diagonal=lambda x: torch.diagonal(x, dim1=-2, dim2=-1),
        expand_dims=lambda x, axis: torch.unsqueeze(x, axis),
        flip=lambda x, axis: torch.flip(x, (axis,)),
        roll=lambda x, shift, axis: torch.roll(x, shift, axis),
        unstack=lambda x, axis: torch.unbind(x, axis),
        tensordot=lambda x, y, axes: torch.tensordot(x, y, dims=axes),
        take_along_axis=take_along_axis,
        segment_sum=segment_sum,
        conv=nn.conv1d,
        max_pool=lambda x, size, stride: nn.max_pool1d(x, size, stride),
        avg_pool=lambda x, size, stride: nn.avg_pool1d(x, size, stride),
    )


def _torch() -> Derivatives:
    torch = importlib.import_module("torch")
    names = _torch_names(torch)

    def derivatives(program: Any) -> Results:
        inputs = [torch.tensor(x, requires_grad=True) for x in program.inputs]
        vectors = [torch.tensor(v) for v in program.vectors]
        value = program.loss(names, inputs)
        gradient = torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True)
        slope = sum((g * v).sum() for g, v in zip(gradient, vectors, strict=True))
        if slope.requires_grad:
            product = torch.autograd.grad(slope, inputs, materialize_grads=True)
        else:  # a linear loss
            product = [torch.zeros_like(x) for x in inputs]
        parts = ([value], [slope], gradient, product)
        found = [[part.numpy(force=True) for part in some] for some in parts]
        return _results(found[0][0], found[1][0], found[2], found[3])

    return derivatives


LIBRARIES: dict[str, Callable[[], Derivatives]] = {
    "fdbr": lambda: _fdbr,
    "jax": _jax,
    "torch": _torch,
}


def load(name: str) -> Library | None:
    """A library, made ready; `None` where it is not installed."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is installed, and broken
            raise
        return None
    return Library(str(getattr(module, "__version__", "?")), LIBRARIES[name]())
