"""Configurations: frozen classes of settings, from the command line and from files."""

import copy
import dataclasses
import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = [
    "changed",
    "configure",
    "fields",
    "fingerprint",
    "flat",
    "load_config",
    "plain",
    "save_config",
]

C = TypeVar("C")


@public("fdbr.train")
def configure(
    kind: type[C], argv: Sequence[str] | None = None, *, file: str | Path | None = None
) -> C:
    """A configuration from the command line, over a TOML file, over the defaults of its class.

    Each field is an option: ``--width 4``, ``--optimizer.rate 0.1`` of a class within; ``--help``
    prints them with their types, defaults and descriptions in the docstring.  `Tyro
    <https://brentyi.github.io/tyro>`_ parses them.  ``--config FILE`` names the TOML file, whose
    tables are the classes within.

    Parameters
    ----------
    kind
        An attrs class (or a dataclass) whose fields have types.
    argv
        The arguments, without the name of the program; by default those of this process.
    file
        A TOML file, if ``--config`` names no other.

    Returns
    -------
    kind
        The configuration.

    Raises
    ------
    ImportError
        If ``tyro`` or ``cattrs`` is not installed.
    TypeError
        If ``kind`` is no such class.
    ValueError
        If the file is no TOML, has a field that the class has not, or one of another type.
    OSError
        If the file cannot be read.
    SystemExit
        Where arguments do not fit (what is wrong is printed), or ask for help.

    >>> import attrs
    >>> from fdbr import train
    >>> @attrs.frozen
    ... class Config:
    ...     width: int = 100
    ...     rate: float = 1e-3
    >>> train.configure(Config, ["--width", "20"])
    Config(width=20, rate=0.001)
    """
    name = "train.configure"
    if not (isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))):
        raise TypeError(
            f"fdbr.{name}: kind must be an attrs class or a dataclass, not {describe(kind)}"
        )
    parser = optional(name, "tyro", "sweep")
    arguments, named = _without_file(argv)
    source = file if named is None else named
    if source is None:
        return parser.cli(kind, args=arguments)
    return parser.cli(kind, args=arguments, default=load_config(source, kind))


def _without_file(argv: Sequence[str] | None) -> tuple[list[str], str | None]:
    """The arguments without ``--config FILE``, and the file."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for i, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return arguments[:i] + arguments[i + 1 :], argument.partition("=")[2]
        if argument == "--config" and i + 1 < len(arguments):
            return arguments[:i] + arguments[i + 2 :], arguments[i + 1]
    return arguments, None


@public("fdbr.train")
def load_config(path: str | Path, kind: type[C]) -> C:
    """A configuration from a TOML file, or from the JSON of a run's folder.

    Parameters
    ----------
    path
        A ``.toml`` file whose tables are the classes within; or a ``.json`` file that `save_config`
        wrote.  What it leaves out has the default of the class.
    kind
        The class of the configuration.

    Raises
    ------
    ImportError
        If ``cattrs`` is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it has a field that the class has not, one of another type, or is no such file.

    >>> import attrs, pathlib, tempfile
    >>> from fdbr import train
    >>> @attrs.frozen
    ... class Config:
    ...     width: int = 100
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "small.toml")
    ...     _ = path.write_text("width = 20")
    ...     train.load_config(path, Config)
    Config(width=20)
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if Path(path).suffix == ".toml" else json.loads(text)
    except ValueError as error:  # of either format
        raise ValueError(f"fdbr.train.load_config: {path} cannot be read: {error}") from error
    return _structured(path, values, kind)


def _structured(path: Any, values: Any, kind: type[C]) -> C:
    converter = _converter("train.load_config", strict=True)
    try:
        return converter.structure(values, kind)
    except Exception as error:
        transform = optional("train.load_config", "cattrs", "sweep").transform_error
        found = "; ".join(transform(error, path="")) if isinstance(error, ExceptionGroup) else error
        raise ValueError(
            f"fdbr.train.load_config: {path} is no {kind.__name__}: {found}"
        ) from error


@public("fdbr.train")
def save_config(path: str | Path, config: Any) -> None:
    """Write a configuration as JSON, for `load_config`.

    Parameters
    ----------
    path
        The file.
    config
        A configuration: numbers, strings, truth values, `None`, paths, and sequences, mappings and
        classes of these.

    Raises
    ------
    TypeError
        If it holds something else.
    OSError
        If the file cannot be written.

    >>> import pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train.save_config(pathlib.Path(folder, "config.json"), {"width": 3})
    """
    text = json.dumps(plain("train.save_config", config), indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def plain(function: str, config: Any) -> Any:
    """A configuration as JSON has it."""
    converter = _converter(function, strict=False)
    try:
        return json.loads(json.dumps(converter.unstructure(config)))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"fdbr.{function}: a configuration must be made of numbers, strings, truth values, "
            f"None, paths, sequences, mappings and classes of these: {error}"
        ) from error


def _converter(function: str, *, strict: bool) -> Any:
    library = optional(function, "cattrs", "sweep")
    converter = library.Converter(forbid_extra_keys=strict)
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Path, lambda value, _: Path(value))
    return converter


def fingerprint(values: Any) -> str:
    """A name for the plain values of a configuration, the same in every process."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flat(values: Any, path: str = "") -> dict[str, Any]:
    """Plain values by their paths, as ``optimizer.rate``."""
    if not isinstance(values, dict):
        return {path: values}
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{path}.{name}" if path else name)
    return found


def fields(config: Any) -> tuple[str, ...]:
    """The names of the fields of a configuration; none, if it is a single value."""
    if isinstance(config, Mapping):
        return tuple(map(str, config))
    if attrs.has(type(config)):
        return tuple(field.name for field in attrs.fields(type(config)))
    if dataclasses.is_dataclass(config):
        return tuple(field.name for field in dataclasses.fields(config))
    return ()


def changed(function: str, config: Any, path: str, value: Any) -> Any:
    """A configuration with another value at a path, as ``optimizer.rate``."""
    name, _, rest = path.partition(".")
    known = fields(config)
    if name not in known:
        raise ValueError(
            f"fdbr.{function}: {type(config).__name__} has no field {name!r}; it has "
            f"{', '.join(known) or 'none'}"
        )
    if rest:
        part = config[name] if isinstance(config, Mapping) else getattr(config, name)
        value = changed(function, part, rest, value)
    if isinstance(config, Mapping):
        made = dict(copy.copy(config))
        made[name] = value
        return made
    if attrs.has(type(config)):
        return attrs.evolve(config, **{name: value})
    return dataclasses.replace(config, **{name: value})
