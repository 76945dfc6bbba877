"""Junk, and values that are none, for every parameter of every public function."""

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

import fdbr
from fdbr import distributed, distributions, nn, ops, random, testing, train, tree

MODULES = {
    "fdbr": fdbr,
    "fdbr.backend": fdbr.backend,
    "fdbr.debug": fdbr.debug,
    "fdbr.distributed": distributed,
    "fdbr.distributions": distributions,
    "fdbr.nn": nn,
    "fdbr.nn.initializers": nn.initializers,
    "fdbr.ops": ops,
    "fdbr.ops.fft": ops.fft,
    "fdbr.ops.linalg": ops.linalg,
    "fdbr.random": random,
    "fdbr.testing": testing,
    "fdbr.train": train,
    "fdbr.train.augment": train.augment,
    "fdbr.train.optim": train.optim,
    "fdbr.tree": tree,
}


def _nested(kind: Any) -> Any:
    return functools.reduce(lambda inside, _: kind(inside), range(500), 1.0)


NESTED = {
    "a list nested 500 deep": _nested(lambda inside: [inside]),
    "a tuple nested 500 deep": _nested(lambda inside: (inside,)),
    "a dict nested 500 deep": _nested(lambda inside: {"a": inside}),
}


def junk() -> dict[str, Any]:
    """What is no good almost everywhere, made anew but for what is deep."""
    itself: list[Any] = [1.0]
    itself.append(itself)
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    return {
        "None": None,
        "a string": "abc",
        "an empty string": "",
        "bytes": b"abc",
        "a module": np,
        "a class": int,
        "NaN": float("nan"),
        "infinity": float("inf"),
        "a negative integer": -1,
        "a negative number": -1.5,
        "a huge integer": 10**30,
        "a huge negative integer": -(10**30),
        "a huge number": 1e300,
        "a complex number": 1j,
        "an empty list": [],
        "an empty tuple": (),
        "an empty dict": {},
        "an empty set": set(),
        "a set": {1, 2},
        **NESTED,
        "a list that holds itself": itself,
        "a dict that holds itself": loop,
        "an object array": np.array([None, "a"], dtype=object),
        "an array of strings": np.array(["a", "b"]),
        "a structured array": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]),
        "dates": np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
        "an empty array": np.zeros((0,)),
        "an array of many dimensions": np.zeros((1,) * 8),
        "a generator": (i for i in range(3)),
        "a lambda": lambda: None,
        "an object": object(),
    }


# --- values that are no junk --------------------------------------------------------


def _square(x: Any) -> Any:
    return ops.sum(x * x)


def _step(state: Any, batch: Any) -> Any:
    return state, {"loss": 0.0}


X = np.array([[1.0, 0.5], [0.5, 2.0]])
N = np.array([[1, 0], [0, 1]])
KEY = random.key(0)
REPORT = train.Report(1, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.1)
FLOATS = {"tol", "rtol", "atol", "eps", "momentum", "b1", "b2", "rate", "gap", "p", "low", "scale"}

BY_NAME: dict[str, Any] = {
    "key": KEY,
    "comm": distributed.serial(),
    "shape": (2, 2),
    "dtype": "float64",
    "axis": 0,
    "f": _square,
    "func": _square,
    "primals": (X,),
    "tangents": (X,),
    "args": (X,),
    "x0": X,
    "t": np.array([0.0, 1.0]),
    "indices": np.array([0, 1]),
    "index": np.array([0, 1]),
    "labels": np.array([0, 1]),
    "step": _step,
    "batches": train.Batches(np.zeros(4), size=2),
    "state": 0.0,
    "reports": [REPORT],
    "metrics_of_state": lambda state: {"a": 1.0},
    "epochs": 1,
    "num_classes": 3,
    "device": "cpu",
    "values": X,
    "params": X,
    "updates": X,
    "grads": X,
    "tree": X,
    "num": 3,
    "n": 3,
    "window_shape": 2,
    "sections": 2,
    "repeats": 2,
    "condition": X > 0,
    "size": 2,
    "path": "/nonexistent/fdbr",
    "folder": "/nonexistent/fdbr",
    "arrays": [X, X],
    "ord": 2,
    "seed": 0,
    "data": 1,
    "subscripts": "ij->i",
    "predicate": lambda leaf: True,
    "structure": tree.structure(X),
    "leaves": [X],
    "xp": np,
    "lower": 0,
    "upper": 3,
    "cond_fun": lambda val: np.bool_(False),
    "body_fun": lambda *args: args[-1],
    "init_val": X,
}


def valid(name: str, parameter: inspect.Parameter) -> Any:
    """A value that a parameter may have, as far as its name tells."""
    if parameter.name in BY_NAME:
        return BY_NAME[parameter.name]
    if parameter.default is not parameter.empty:
        return parameter.default
    return 0.5 if parameter.name in FLOATS else X


# --- what to call -------------------------------------------------------------------


def functions() -> dict[str, Any]:
    """Every public function and class by its full name."""
    found: dict[str, Any] = {}
    for prefix, module in MODULES.items():
        for name in dir(module):
            value = getattr(module, name)
            if not isinstance(value, types.FunctionType | type):
                continue
            if isinstance(value, type) and (
                not value.__module__.startswith("fdbr") or issubclass(value, BaseException)
            ):
                continue
            alias = isinstance(value, type) and name != value.__name__ in dir(module)
            if not alias and not any(value is other for other in found.values()):
                found[f"{prefix}.{name}"] = value
    return found


def calls(name: str, function: Any) -> Iterator[tuple[str, Any]]:
    """Calls with junk in one parameter, and what that is; each call is made when it is asked."""
    parameters = list(inspect.signature(function).parameters.values())
    for chosen in parameters:
        for kind in junk():
            args, kwargs = [], {}
            for p in parameters:
                value = junk()[kind] if p is chosen else valid(name, p)
                if p.kind is p.VAR_POSITIONAL:
                    args += [value] if p is chosen else []
                elif p.kind is p.VAR_KEYWORD:
                    kwargs.update({"junk": value} if p is chosen else {})
                elif p.kind is p.KEYWORD_ONLY:
                    if p is chosen or p.default is p.empty:
                        kwargs[p.name] = value
                elif p is chosen or p.default is p.empty or p.name == "key":
                    args.append(value)
                elif parameters.index(chosen) > parameters.index(p):
                    args.append(p.default)
            yield f"{chosen.name} is {kind}", functools.partial(function, *args, **kwargs)


def raised_by(call: Any) -> BaseException | None:
    """The error that a call raises, if any; what it returns is looked at a little."""
    try:
        call()
    except BaseException as error:
        return error
    return None


def is_named(name: str, error: BaseException) -> bool:
    """Whether an error begins with the name of the function that was called, or is a finding."""
    if isinstance(error, AssertionError):
        return ".testing." in name
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return isinstance(error, Exception) and text.startswith((f"{name}:", f"{name} of "))


def is_of_test(error: BaseException) -> bool:
    """Whether an error was raised in one of the functions here that are given as arguments."""
    names = []
    step = error.__traceback__
    while step is not None:
        names.append((step.tb_frame.f_code.co_filename, step.tb_frame.f_code.co_name))
        step = step.tb_next
    return any(file == __file__ and name != "raised_by" for file, name in names)
