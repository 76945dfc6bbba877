"""Frozen classes, which are nodes of pytrees."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, MutableMapping, MutableSequence, MutableSet
from types import CodeType
from typing import Any, TypeVar, dataclass_transform

import attrs
import numpy as np
import optree
from optree.integrations.attrs import AttrsEntry

from fdbr.pytrees.locking import is_locked, lock

__all__ = ["NAMESPACE", "FrozenError", "buffer", "fields_of", "frozen", "in_buffer", "static"]

NAMESPACE = "fdbr"
"""The namespace in which `optree` registers frozen classes."""

T = TypeVar("T")

_BUFFER = "fdbr.buffer"
_STATIC = "fdbr.static"


class FrozenError(attrs.exceptions.FrozenInstanceError):
    """Raised by an attempt to change a frozen object in place."""

    def __init__(self, message: str) -> None:
        AttributeError.__init__(self, message)  # the constructor of attrs takes no message
        self.msg = message


def static(**options: Any) -> Any:
    """A field of a frozen class that is structure, not data.

    Its value is compared and hashed with the structure of the tree, so it must be hashable and
    cannot be an array.  Transformations never see it as a leaf.  The options are those of
    `attrs.field`.

    >>> import fdbr
    >>> @fdbr.frozen
    ... class Scale:
    ...     factor: float
    ...     axis: int = fdbr.static(default=-1)
    >>> fdbr.tree.leaves(Scale(2.0))
    [2.0]
    """
    return _marked_field(_STATIC, options)


def buffer(**options: Any) -> Any:
    """A field whose arrays travel with the object but are never differentiated.

    Running statistics are the usual example.  The leaves below it are leaves of the tree: they are
    saved, moved between devices and mapped over.  Their gradient is `None`.  The options are those
    of `attrs.field`.

    >>> import fdbr, numpy as np
    >>> @fdbr.frozen
    ... class Normalize:
    ...     scale: np.ndarray
    ...     mean: np.ndarray = fdbr.buffer()
    >>> layer = Normalize(np.ones(2), np.zeros(2))
    >>> fdbr.grad(lambda layer: (layer.scale + layer.mean).sum())(layer)
    Normalize(scale=array([1., 1.]), mean=None)
    """
    return _marked_field(_BUFFER, options)


def _marked_field(mark: str, options: dict[str, Any]) -> Any:
    return attrs.field(**options | {"metadata": {**options.pop("metadata", {}), mark: True}})


@dataclass_transform(
    frozen_default=True, field_specifiers=(attrs.field, dataclasses.field, static, buffer)
)
def frozen(cls: type[T] | None = None, /, *, copy: bool = True, **options: Any) -> Any:
    """Make a class attrs-frozen and a pytree node, in one.

    Fields are declared as in attrs; `static` and `buffer` mark the special ones.  The constructor
    copies what its caller could change later: lists, dicts and other containers, and NumPy arrays
    that fdbr has not locked itself.
    Rebuilding a tree does not run ``__init__``, its converters or validators, because a node may
    hold traced values, gradients or `None` where the class itself holds arrays.
    fdbr relies on instances not changing: it may not notice a field that ``object.__setattr__``
    replaces in an instance that has been used.  Two instances are equal if their structures are
    equal and their leaves are bitwise equal.

    Parameters
    ----------
    cls
        The class; given by the decorator syntax.
    copy
        Whether the constructor copies.  With ``False`` the instance shares its arrays with the
        caller, as for a data set that is too large to copy.
    options
        Passed to `attrs.frozen` (for instance ``kw_only=True``).

    Raises
    ------
    FrozenError
        On assignment to, or deletion of, an attribute of an instance, and where ``__init__`` or
        ``__setstate__`` is called for one that has its fields already.
    TypeError
        If a base class is a dataclass, whose fields would be lost; or if a default is a set or
        another mutable object that is not a tree, because all instances would share it.

    >>> import fdbr
    >>> @fdbr.frozen
    ... class Point:
    ...     x: float
    ...     y: float
    >>> fdbr.tree.map(lambda v: 10 * v, Point(1.0, 2.0))
    Point(x=10.0, y=20.0)
    """
    if cls is None:
        return functools.partial(frozen, copy=copy, **options)
    if not isinstance(cls, type):
        raise TypeError(
            f"fdbr.frozen: it makes a class frozen, and was given {type(cls).__name__}; write "
            "@fdbr.frozen above a class"
        )
    _check_bases(cls)
    _translate_dataclass_fields(cls)
    made: Any = attrs.frozen(cls, **{"repr": False, **options})
    _check_defaults(made)
    own = vars(cls)
    made.__setattr__ = _refuse_assignment
    made.__delattr__ = _refuse_assignment
    if "__eq__" not in own and options.get("eq", True):
        made.__eq__ = _equal
    if "__repr__" not in own:
        made.__repr__ = _represent
    made.__init_subclass__ = classmethod(_subclass_hook(made))
    if made is not cls:
        _unregister(cls)  # attrs has made a new class with slots
    _register(made)
    for name in ("__init__", "__setstate__"):
        if name in vars(made):
            setattr(made, name, _filling_once(name, vars(made)[name], made, copy))
    return made


def _check_bases(cls: type) -> None:
    """Raise an error if a base is a dataclass, whose fields attrs does not see."""
    for base in cls.__mro__[1:]:
        if "__dataclass_fields__" in vars(base):
            raise TypeError(
                f"fdbr.frozen: {cls.__name__} inherits from the dataclass {base.__name__}, whose "
                f"fields would be lost; write @fdbr.frozen above {base.__name__} too"
            )


def _translate_dataclass_fields(cls: Any) -> None:
    """Replace fields of `dataclasses.field` by those of `attrs.field`."""
    for name, value in list(vars(cls).items()):
        if not isinstance(value, dataclasses.Field):
            continue
        options: dict[str, Any] = {"init": value.init, "repr": value.repr, "eq": value.compare}
        if value.hash is not None:
            options["hash"] = value.hash
        if value.kw_only is not dataclasses.MISSING:
            options["kw_only"] = value.kw_only
        if value.default is not dataclasses.MISSING:
            options["default"] = value.default
        if value.default_factory is not dataclasses.MISSING:
            options["factory"] = value.default_factory
        setattr(cls, name, attrs.field(metadata=dict(value.metadata), **options))


_MUTABLE = (MutableMapping, MutableSequence, MutableSet)


def _check_defaults(cls: Any) -> None:
    """Raise an error for a mutable default, which all instances would share."""
    for field in attrs.fields(cls):
        default = field.default
        kind = type(default)
        if issubclass(kind, _MUTABLE) and not _is_node(kind):
            raise TypeError(
                f"fdbr.frozen: the default of {cls.__name__}.{field.name}, a {kind.__name__}, "
                f"would be shared by all instances; write attrs.field(factory=...) in its place"
            )


def _is_node(kind: type) -> bool:
    return kind in _fields or optree.register_pytree_node.get(kind, namespace=NAMESPACE) is not None


def _filling_once(name: str, method: Any, cls: Any, copy: bool) -> Any:
    """Wrap ``__init__`` or ``__setstate__``: it runs once for an instance, and copies its arrays.

    It also registers subclasses whose own ``__init_subclass__`` has not called `frozen`'s.
    """
    is_filled = _filled_test(cls)

    @functools.wraps(method)
    def fill(self: Any, *args: Any, **kwargs: Any) -> None:
        kind = type(self)
        if is_filled(self):
            raise FrozenError(
                f"{kind.__name__}.{name}: this {kind.__name__} has its fields already, and it is "
                "frozen. Make a changed copy instead: new = fdbr.tree.replace(old, field=value)."
            )
        method(self, *args, **kwargs)
        if kind not in _fields and issubclass(kind, cls):
            _register(kind)
        if copy:
            _own_fields[kind](self)

    return fill


def _filled_test(cls: Any) -> Callable[[Any], bool]:
    """Return a function that tells whether an instance has its first field."""
    name = next((f.name for f in attrs.fields(cls)), None)
    if name is None:
        return lambda obj: False
    get = _getter(cls)

    def is_filled(obj: Any) -> bool:
        found = get if type(obj) is cls else _getter(type(obj))
        return found(obj, name, _MISSING) is not _MISSING

    return is_filled


_MISSING = object()


def _getter(cls: Any) -> Any:
    """Return a `getattr` for fields that does not call the class's own ``__getattr__``."""
    if not hasattr(cls, "__getattr__"):
        return getattr

    def get(obj: Any, name: str, default: Any) -> Any:
        try:
            return object.__getattribute__(obj, name)
        except AttributeError:
            return default

    return get


def own(value: Any) -> Any:
    """Return a value that its caller cannot change: arrays and containers are copied if needed.

    >>> import numpy as np
    >>> own([np.zeros(2)])[0].flags.writeable
    False
    """
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return value if is_locked(value) else lock(value.copy(order="K"))
    if kind in _fields or not _is_node(kind):
        return value
    leaves, structure = optree.tree_flatten(
        value, is_leaf=lambda part: type(part) in _fields, namespace=NAMESPACE
    )
    return optree.tree_unflatten(structure, map(own, leaves))


def _subclass_hook(made: Any) -> Callable[..., None]:
    """Return an ``__init_subclass__`` that registers subclasses and calls the class's own."""
    given = vars(made).get("__init_subclass__")

    def hook(cls: Any, **options: Any) -> None:
        if given is None:
            super(made, cls).__init_subclass__(**options)
        else:
            given.__get__(None, cls)(**options)
        _register(cls)

    return hook


def _refuse_assignment(self: Any, name: str, *value: Any) -> None:
    kind = type(self).__name__
    raise FrozenError(
        f"cannot {'set' if value else 'delete'} {kind}.{name}: {kind} is frozen. Make a changed "
        f"copy instead: new = fdbr.tree.replace(old, {name}=value)."
    )


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    ours, our_shape = optree.tree_flatten(self, namespace=NAMESPACE)
    theirs, their_shape = optree.tree_flatten(other, namespace=NAMESPACE)
    return our_shape == their_shape and all(map(_same_leaf, ours, theirs))


def _same_leaf(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if not (hasattr(a, "shape") and hasattr(b, "shape")):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if hasattr(a, "tobytes") and hasattr(b, "tobytes") and a.dtype.kind != "O":
        return bool(a.tobytes() == b.tobytes())
    return bool((a == b).all())


def _represent(self: Any) -> str:
    fields = (f for f in attrs.fields(type(self)) if f.repr)
    return f"{type(self).__name__}({', '.join(_field_text(self, f) for f in fields)})"


def _field_text(obj: Any, field: Any) -> str:
    value = getattr(obj, field.name)
    return f"{field.name}={field.repr(value) if callable(field.repr) else _summary(value)}"


def _summary(value: Any) -> str:
    """The repr of a value, with large arrays reduced to dtype and shape."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(_summary, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_summary, value))}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_summary(v)}" for k, v in value.items()) + "}"
    kind = type(value)
    if hasattr(kind, "shape") and hasattr(kind, "dtype") and getattr(value, "size", 0) > 8:
        return _array_text(value)
    return repr(value)


def _array_text(value: Any) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"


# --- as nodes of trees --------------------------------------------------------------

_fields: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
"""The names of the data fields and the static fields of each registered class."""

_own_fields: dict[type, Callable[[Any], None]] = {}
"""For each class, the function that copies the arrays and containers of an instance."""

_PLAIN = frozenset({float, int, bool, complex, str, type(None), np.float32, np.float64})
"""Immutable types that fields usually hold beside arrays."""


def _register(cls: Any) -> None:
    fields = attrs.fields(cls)
    data = tuple(f.name for f in fields if not f.metadata.get(_STATIC))
    fixed = tuple(f.name for f in fields if f.metadata.get(_STATIC))
    _unregister(cls)
    to_children, from_children, _own_fields[cls] = _node_functions(cls, data, fixed)
    _fields[cls] = data, fixed
    optree.register_pytree_node(
        cls, to_children, from_children, path_entry_type=AttrsEntry, namespace=NAMESPACE
    )


def _node_functions(cls: Any, data: tuple[str, ...], fixed: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the functions that flatten a node, rebuild it, and copy its mutable fields."""
    scope: dict[str, Any] = {
        "check": _check_static,
        "cls": cls,
        "data": data,
        "get": _getter(cls),
        "new": cls.__new__,
        "own": own,
        "plain": _PLAIN,
        "put": object.__setattr__,
    }
    exec(_node_code(data, fixed), scope)
    return scope["apart"], scope["again"], scope["own_fields"]


@functools.cache
def _node_code(data: tuple[str, ...], fixed: tuple[str, ...]) -> CodeType:
    """Compile these functions with the fields spelled out, as attrs does for its methods.

    They run several times in every training step; loops over the names would be slower.
    """

    def fields(names: tuple[str, ...]) -> str:
        return "(" + "".join(f"obj.{name}, " for name in names) + ")"

    # A value without a hash may be an array, which `check` refuses.
    checks = [f" if type(obj.{n}).__hash__ is None: check(obj, {n!r}, obj.{n})" for n in fixed]
    apart = ["def apart(obj):", *checks, f" return {fields(data)}, {fields(fixed)}, data"]
    puts = [f" put(obj, {name!r}, children[{i}])" for i, name in enumerate(data)]
    puts += [f" put(obj, {name!r}, metadata[{i}])" for i, name in enumerate(fixed)]
    again = ["def again(metadata, children):", " obj = new(cls)", *puts, " return obj"]
    owns = ["def own_fields(obj):", *([" pass"] if not data else [])]
    for name in data:
        owns += [
            f" value = get(obj, {name!r}, None)",
            " if type(value) not in plain:",
            "  owned = own(value)",
            f"  if owned is not value: put(obj, {name!r}, owned)",
        ]
    return compile("\n".join([*apart, *again, *owns]), __file__, "exec")


def _check_static(obj: Any, name: str, value: Any) -> None:
    """Raise an error if a static field holds an array, whose comparison has no truth value."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = type(obj).__name__
        raise TypeError(
            f"fdbr.frozen: the static field {kind}.{name} holds an array, {_array_text(value)}. A "
            f"static field is structure, which is compared and hashed. Make {name} a field of "
            "data (fdbr.buffer() if it is not to be trained), or give a tuple of numbers, "
            "tuple(x.tolist())."
        )


def fields_of(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the names of a frozen class's data fields and static fields; `None` for others."""
    return _fields.get(cls)


def _unregister(cls: Any) -> None:
    _fields.pop(cls, None)
    _own_fields.pop(cls, None)
    with contextlib.suppress(ValueError):  # the class was not registered
        optree.unregister_pytree_node(cls, namespace=NAMESPACE)


def in_buffer(entry: Any) -> bool:
    """Whether an entry of a path leads into a `buffer` field."""
    return isinstance(entry, AttrsEntry) and bool(
        getattr(attrs.fields(entry.type), entry.field).metadata.get(_BUFFER)
    )
