"""How an operation is declared: its value, and the rules that its kind derives.

An operation is declared in one place, as a function of an array module and its operands,
under a decorator that names its kind and states its derivative once, in fdbr's own terms:

- `elementwise`: the partial derivative in each operand;
- `linear`: the transpose in each operand; the operation is linear in all of them together;
- `multilinear`: the transpose in each operand; it is linear in each of them alone;
- `joining` and `indexed`: `linear`, for any number of operands, and with indices;
- `opaque`: the reverse rules, one by one;
- `constant`: the derivative is zero wherever it exists.

A statement says by its parameter names what it needs: an operand, ``out`` (the value),
``shape``, ``dtype`` or ``like`` (of the operand that is differentiated), or a keyword of the
operation.  What it names is kept for the backward pass, and nothing else.

Statements are written with operators, array methods and `fdbr.ops`, so they work on traced
values too, and derivatives of derivatives come by themselves.
"""

import inspect
from collections.abc import Callable
from typing import Any

from fdbr.core import Primitive, dispatch

__all__ = [
    "Rule",
    "constant",
    "elementwise",
    "fit",
    "indexed",
    "joining",
    "linear",
    "multilinear",
    "opaque",
]

Function = Callable[..., Any]


class Rule:
    """The reverse rule of one operand.

    ``pull(cotangent, *saved)`` is the operand's cotangent, where ``saved`` is what
    ``save(operands, out, params)`` kept of the forward pass.  ``retains`` are the positions
    of the operands among that.
    """

    __slots__ = ("pull", "retains", "save")

    def __init__(self, pull: Function, names: list[str], operands: tuple[str, ...], index: int):
        self.pull = pull
        self.save = _saver(names, operands, index)
        self.retains = tuple(operands.index(name) for name in names if name in operands)


def _saver(names: list[str], operands: tuple[str, ...], index: int) -> Function:
    """A function ``(args, out, params) -> tuple`` of the named things.

    It is made from source, as attrs makes its methods, because it runs for every operation.
    """
    me = f"args[{index}]"
    fast = {name: f"args[{i}]" for i, name in enumerate(operands)} | {
        "out": "out",
        "shape": f"{me}.shape",
        "dtype": f"{me}.dtype",
        "like": f"None if {me}.shape == out.shape and {me}.dtype is out.dtype else like({me}, out)",
    }
    # Python numbers have no shape and no dtype.
    slow = fast | {
        "shape": f"shape_of({me})",
        "dtype": f"dtype_of({me})",
        "like": f"like({me}, out)",
    }
    source = "def save(args, out, params):\n try: return {}\n except AttributeError: return {}\n"
    scope: dict[str, Any] = {"shape_of": shape_of, "dtype_of": dtype_of, "like": like}
    exec(source.format(*(_tuple_source(names, table) for table in (fast, slow))), scope)
    return scope["save"]


def _tuple_source(names: list[str], table: dict[str, str]) -> str:
    return f"({''.join(table.get(name, f'params[{name!r}]') + ', ' for name in names)})"


# --- fitting a cotangent to its operand ---------------------------------------------


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or number."""
    return getattr(value, "shape", ())


def dtype_of(value: Any) -> Any:
    """The dtype of an array, or the type of a Python number, which is weak."""
    return getattr(value, "dtype", None) or type(value)


def like(value: Any, out: Any) -> Any:
    """What `fit` must know of an operand: `None` where it is as the output is."""
    shape, dtype = shape_of(value), dtype_of(value)
    return None if shape == shape_of(out) and dtype == dtype_of(out) else (shape, dtype)


def fit(cotangent: Any, like: Any) -> Any:
    """Bring a cotangent of a broadcast output to an operand's shape and dtype.

    Broadcasting repeats, so its transpose adds up; a promotion of the dtype is undone, and of
    a complex cotangent for a real operand the real part counts.
    """
    if like is None:
        return cotangent
    shape, dtype = like
    if cotangent.shape != shape:
        cotangent = _unbroadcast(cotangent, shape)
    if cotangent.dtype != dtype:
        if (
            cotangent.dtype.kind == "c"
            and dtype is not complex
            and getattr(dtype, "kind", "") != "c"
        ):
            cotangent = cotangent.real
        cotangent = cotangent.astype(dtype)
    return cotangent


def _unbroadcast(value: Any, shape: tuple[int, ...]) -> Any:
    extra = value.ndim - len(shape)
    if extra == 1 and 1 not in shape:
        return value.sum(axis=0)
    ones = (extra + i for i, n in enumerate(shape) if n == 1 and value.shape[extra + i] != 1)
    value = value.sum(axis=(*range(extra), *ones))
    return value if value.shape == shape else value.reshape(shape)


# --- the kinds ----------------------------------------------------------------------


def elementwise(**partials: Any) -> Callable[[Function], Any]:
    """Declare an operation that acts on each element alone, with NumPy's broadcasting.

    The partial derivative in an operand is a function of what it names, or the number 1 or
    -1, or `None` where it is zero.
    """

    def declare(value: Function) -> Any:
        operands = _operands(value)
        rules = [_partial_rule(partials[name], operands, i) for i, name in enumerate(operands)]
        return _operation(value, "elementwise", rules)

    return declare


def _partial_rule(partial: Any, operands: tuple[str, ...], index: int) -> Rule | None:
    if partial is None:
        return None
    if isinstance(partial, int):
        pull = _identity_pull if partial == 1 else _negative_pull
        return Rule(pull, ["like"], operands, index)
    names = list(inspect.signature(partial).parameters)
    make = _partial_pull_of_one if len(names) == 1 else _partial_pull
    return Rule(make(partial), ["like", *names], operands, index)


def _partial_pull(partial: Function) -> Function:
    def pull(ct: Any, like: Any, *saved: Any) -> Any:
        ct = ct * partial(*saved)
        return ct if like is None else fit(ct, like)

    return pull


def _partial_pull_of_one(partial: Function) -> Function:
    # The usual case without the packing of arguments.
    def pull(ct: Any, like: Any, saved: Any) -> Any:
        ct = ct * partial(saved)
        return ct if like is None else fit(ct, like)

    return pull


def _identity_pull(ct: Any, like: Any) -> Any:
    return ct if like is None else fit(ct, like)


def _negative_pull(ct: Any, like: Any) -> Any:
    return -ct if like is None else fit(-ct, like)


def linear(**transposes: Function) -> Callable[[Function], Any]:
    """Declare an operation that is linear in all the operands given here together.

    A transpose takes the cotangent, and what it names, to the operand's cotangent.
    """
    return _stated("linear", transposes)


def multilinear(**transposes: Function) -> Callable[[Function], Any]:
    """Declare an operation that is linear in each of the operands given here alone."""
    return _stated("multilinear", transposes)


def opaque(**pulls: Function) -> Callable[[Function], Any]:
    """Declare an operation whose reverse rules are stated one by one.

    Each takes the cotangent, and what it names, to the operand's cotangent.
    """
    return _stated("opaque", pulls)


def constant(value: Function) -> Any:
    """Declare an operation whose derivative is zero wherever it exists."""
    return _operation(value, "constant", _Rules(lambda index: None))


def _stated(kind: str, statements: dict[str, Function]) -> Callable[[Function], Any]:
    def declare(value: Function) -> Any:
        operands = _operands(value)
        rules = [_stated_rule(statements.get(n), operands, i) for i, n in enumerate(operands)]
        return _operation(value, kind, rules)

    return declare


def _stated_rule(statement: Any, operands: tuple[str, ...], index: int) -> Rule | None:
    if statement is None:
        return None
    names = list(inspect.signature(statement).parameters)[1:]
    return Rule(statement, names, operands, index)


def joining(transpose: Function) -> Callable[[Function], Any]:
    """Declare an operation that is linear in any number of operands together.

    ``transpose(cotangent, index, shapes, params)`` is the cotangent of operand ``index``,
    before it is brought to the operand's dtype.
    """

    def declare(value: Function) -> Any:
        return _operation(value, "linear", _Rules(lambda index: _JoiningRule(transpose, index)))

    return declare


class _JoiningRule:
    """The rule of one operand among many: it keeps their shapes and its dtype."""

    __slots__ = ("index", "transpose")

    retains = ()

    def __init__(self, transpose: Function, index: int) -> None:
        self.transpose = transpose
        self.index = index

    def save(self, args: Any, out: Any, params: dict[str, Any]) -> tuple[Any, ...]:
        mine = args[self.index]
        return [shape_of(arg) for arg in args], (shape_of(mine), dtype_of(mine)), params

    def pull(self, ct: Any, shapes: Any, like: Any, params: dict[str, Any]) -> Any:
        return fit(self.transpose(ct, self.index, shapes, params), like)


def indexed(*transposes: Function) -> Callable[[Function], Any]:
    """Declare an operation that is linear in its first operands, at places the others tell.

    There is one transpose for each operand that is no index: ``transpose(cotangent, shape,
    indices, params)`` is its cotangent, in the output's dtype.
    """
    rules = [_IndexedRule(transpose, i, len(transposes)) for i, transpose in enumerate(transposes)]

    def declare(value: Function) -> Any:
        return _operation(value, "linear", _Rules(lambda i: rules[i] if i < len(rules) else None))

    return declare


class _IndexedRule:
    """The rule of one operand; the indices are read-only when they come here."""

    __slots__ = ("first", "index", "pull")

    retains = ()

    def __init__(self, transpose: Function, index: int, first: int) -> None:
        self.pull = transpose
        self.index = index
        self.first = first

    def save(self, args: Any, out: Any, params: dict[str, Any]) -> tuple[Any, ...]:
        return shape_of(args[self.index]), args[self.first :], params


def _operands(value: Function) -> tuple[str, ...]:
    """The names of the positional parameters after the array module."""
    parameters = list(inspect.signature(value).parameters.values())[1:]
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


class _Rules:
    """The rules of an operation with any number of operands."""

    __slots__ = ("_rule",)

    def __init__(self, rule: Function) -> None:
        self._rule = rule

    def __getitem__(self, index: int) -> Any:
        return self._rule(index)


def _operation(value: Function, kind: str, rules: Any) -> Any:
    """Make the primitive, and the function that applies it.

    The function has the value's name, docstring and signature without the array module.
    """
    primitive = Primitive(value.__name__.strip("_"), kind, value, rules)
    parameters = list(inspect.signature(value).parameters.values())[1:]
    scope = {"dispatch": dispatch, "primitive": primitive, "none": {}}
    scope |= {f"default_{p.name}": p.default for p in parameters}
    function = eval(_call_source(parameters), scope)
    function.__name__ = function.__qualname__ = value.__name__
    function.__module__ = value.__module__
    function.__doc__ = value.__doc__
    function.primitive = primitive
    return function


def _call_source(parameters: list[inspect.Parameter]) -> str:
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    star = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    operands = "".join(f"{name}, " for name in positional) + "".join(f"*{n}, " for n in star)
    heads = [*positional, "/"] if positional else []  # operands have no names for callers
    heads += [f"*{star[0]}"] if star else ["*"] if keywords else []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY:
            heads.append(p.name if p.default is p.empty else f"{p.name}=default_{p.name}")
    params = "{" + ", ".join(f"{k!r}: {k}" for k in keywords) + "}" if keywords else "none"
    return f"lambda {', '.join(heads)}: dispatch(primitive, ({operands}), {params})"
