"""Functions that give other values at other times: clocks, settings, and readings of files."""

from collections.abc import Iterable

__all__ = ["unsteady_function", "unsteady_method"]

# The modules, in C, whose functions do so, but for some.
_CLOCKS = frozenset({"time", "posix", "nt", "_random", "_io", "io", "_socket", "select"})
_STEADY = frozenset({"sleep", "fspath", "abort", "_exit"})

# Those in Python.
_OUTSIDE = frozenset({"getpass", "glob", "secrets", "shutil", "subprocess", "tempfile", "uuid"})
_IMPORTING = frozenset({"import_module", "__import__", "reload"})

# NumPy's functions that do.
_READING = frozenset(
    {
        *("load", "loadtxt", "genfromtxt", "fromfile", "fromregex"),
        *("geterr", "geterrcall", "getbufsize", "get_printoptions"),
    }
)

# And the methods of classes, by their module.
_METHODS = {
    "datetime": frozenset({"now", "today", "utcnow"}),
    "pathlib": frozenset(
        "read_text read_bytes open exists stat iterdir glob is_file is_dir".split()
    ),
}
_ANEW = "which no replay would call anew"


def unsteady_function(module: str, name: str) -> str:
    """Why a function of a library's module cannot be replayed; nothing if it can.

    >>> unsteady_function("time", "perf_counter")
    'it can call perf_counter of time, which no replay would call anew'
    >>> unsteady_function("time", "sleep")
    ''
    """
    if module in _OUTSIDE or (module in _CLOCKS and name not in _STEADY) or name in _IMPORTING:
        return f"it can call {name} of {module}, {_ANEW}"
    if module.startswith("numpy") and name in _READING:
        return f"it can call numpy.{name}, {_ANEW}"
    return ""


def unsteady_method(cls: type, names: Iterable[str]) -> str:
    """Why no method of a library's class with one of these names can be replayed, if that is so."""
    found = _METHODS.get(cls.__module__.partition(".")[0], frozenset()).intersection(names)
    return f"it can call {cls.__qualname__}.{min(found)}, {_ANEW}" if found else ""
