"""Functions whose results vary between calls: clocks, settings, and reads of files."""

from collections.abc import Iterable

__all__ = ["impure_function", "impure_method"]

# C modules whose functions are impure, but for those in `_PURE`.
_CLOCKS = frozenset({"time", "posix", "nt", "_random", "_io", "io", "_socket", "select"})
_PURE = frozenset({"sleep", "fspath", "abort", "_exit"})

# Python modules whose functions are impure.
_IMPURE = frozenset({"getpass", "glob", "secrets", "shutil", "subprocess", "tempfile", "uuid"})
_IMPORTING = frozenset({"import_module", "__import__", "reload"})

# Impure functions of NumPy.
_READING = frozenset(
    {
        *("load", "loadtxt", "genfromtxt", "fromfile", "fromregex"),
        *("geterr", "geterrcall", "getbufsize", "get_printoptions"),
    }
)

# Impure methods of classes, by their module.
_METHODS = {
    "datetime": frozenset({"now", "today", "utcnow"}),
    "pathlib": frozenset(
        "read_text read_bytes open exists stat iterdir glob is_file is_dir".split()
    ),
}
_NOT_REPEATED = "which no replay would call again"


def impure_function(module: str, name: str) -> str:
    """Return why a function of a library's module cannot be replayed; empty if it can.

    >>> impure_function("time", "perf_counter")
    'it can call perf_counter of time, which no replay would call again'
    >>> impure_function("time", "sleep")
    ''
    """
    if module in _IMPURE or (module in _CLOCKS and name not in _PURE) or name in _IMPORTING:
        return f"it can call {name} of {module}, {_NOT_REPEATED}"
    if module.startswith("numpy") and name in _READING:
        return f"it can call numpy.{name}, {_NOT_REPEATED}"
    return ""


def impure_method(cls: type, names: Iterable[str]) -> str:
    """Return why methods with these names of a class cannot be replayed; empty if they can."""
    found = _METHODS.get(cls.__module__.partition(".")[0], frozenset()).intersection(names)
    return f"it can call {cls.__qualname__}.{min(found)}, {_NOT_REPEATED}" if found else ""
