"""Text generation by a decoder, token by token."""

import inspect
import math
from typing import Any

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public

__all__ = ["generate", "sample"]


@public("fdbr.nn.models")
def generate(
    model: Any,
    key: Any,
    tokens: Any,
    length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    cache: bool = True,
) -> Any:
    """Continue texts by tokens sampled from a model.

    Parameters
    ----------
    model
        A decoder like `GPT2`: ``model(tokens)`` gives logits of the next tokens, shape
        ``(*tokens.shape, vocabulary)``.  If its call takes ``last``, only the logits after the last
        token are computed.
    key
        A random key, which determines the texts.  It may be `None` with ``temperature=0``.
    tokens
        The beginnings of the texts: integers of shape ``(..., n)`` with ``n`` at least 1.
    length
        The number of tokens to add.
    temperature, top_k, top_p
        As for `sample`.
    cache
        Whether keys and values of attention are cached, which gives the same texts faster.  A model
        without a method ``cache`` needs ``cache=False``.

    Returns
    -------
    array
        Shape ``(..., n + length)``, which begins with ``tokens``.

    Raises
    ------
    TypeError, ValueError
        If ``tokens`` are not integers or are empty, or a setting is of a wrong type or value.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import nn
    >>> sizes = dict(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    >>> model = nn.models.GPT2.init(fdbr.random.key(0), **sizes)
    >>> begin = np.array([[3, 1, 4], [1, 5, 9]])
    >>> texts = nn.models.generate(model, fdbr.random.key(1), begin, 5, temperature=0.8, top_k=10)
    >>> texts.shape
    (2, 8)
    """
    where = "fdbr.nn.models.generate"
    tokens = ops.asarray(tokens)
    count = integer(where, "length", length, least=0)
    if tokens.dtype.kind not in "iu" or tokens.ndim < 1 or not tokens.shape[-1]:
        raise ValueError(
            f"{where}: tokens must be integers of shape (..., n), one at least in each text, got "
            f"{describe(tokens)}"
        )
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    last = {"last": True} if _computes_the_last(model) else {}
    caches = model.cache(tokens.shape[:-1], tokens.shape[-1] + count) if cache and count else None
    new = tokens
    for i in range(count):
        if caches is None:
            logits = model(tokens, **last)
        else:
            logits, caches = model(new, cache=caches, **last)
        own = None if key is None else random.fold_in(key, i)
        new = ops.astype(sample(own, logits[..., -1, :], **settings), tokens.dtype)[..., None]
        tokens = ops.concat([tokens, new], axis=-1)
    return tokens


def _computes_the_last(model: Any) -> bool:
    """Return whether a model takes ``last``, to compute the last logits alone."""
    try:
        return "last" in inspect.signature(model).parameters
    except (TypeError, ValueError):  # what has no signature
        return False


@public("fdbr.nn.models")
def sample(
    key: Any,
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Any:
    """Draw integers with probabilities given by logits.

    Parameters
    ----------
    key
        A random key; it may be `None` with ``temperature=0``.
    logits
        Shape ``(..., vocabulary)``.
    temperature
        The divisor of the logits: below 1 likely tokens become likelier, and 0 takes the likeliest.
    top_k
        The number of likeliest tokens that may be drawn (ties with the last of them included).
    top_p
        Only the likeliest tokens that together have this probability may be drawn, after
        ``temperature`` and ``top_k``: Holtzman et al., *The curious case of neural text
        degeneration*, ICLR 2020.

    Returns
    -------
    array
        Integers of shape ``logits.shape[:-1]``.

    Raises
    ------
    TypeError, ValueError
        If a setting is of a wrong type or value, or there is no key.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import nn
    >>> logits = np.log(np.array([0.5, 0.3, 0.2]))
    >>> draw = lambda i: int(nn.models.sample(fdbr.random.key(i), logits, top_p=0.6))
    >>> sorted({draw(i) for i in range(20)})
    [0, 1]
    """
    where = "fdbr.nn.models.sample"
    logits = ops.asarray(logits)
    if not temperature >= 0 or temperature == math.inf:
        raise ValueError(f"{where}: temperature must be a number from 0 on, got {temperature!r}")
    if top_k is not None:
        top_k = min(integer(where, "top_k", top_k, least=1), logits.shape[-1])
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"{where}: top_p must be in (0, 1], got {top_p!r}")
    if temperature == 0:
        return ops.argmax(logits, axis=-1)
    if key is None:
        raise TypeError(
            f"{where}: tokens are drawn by a key, and there is none; give one, or temperature=0"
        )
    logits = logits / temperature
    if top_k is not None:
        least = ops.sort(logits, axis=-1)[..., -top_k]
        logits = ops.where(logits < least[..., None], -math.inf, logits)
    if top_p is not None and top_p < 1:
        ordered = ops.sort(logits, axis=-1, descending=True)
        shares = ops.softmax(ordered)
        above = ops.cumulative_sum(shares, axis=-1) - shares
        least = ops.min(ops.where(above < top_p, ordered, math.inf), axis=-1, keepdims=True)
        logits = ops.where(logits < least, -math.inf, logits)
    return random.categorical(key, logits)
