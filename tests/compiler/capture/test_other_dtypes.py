"""Arrays of text, dates, records and objects in jitted functions."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

X = np.arange(3.0)

ARRAYS = {
    "text": np.array(["a", "b", "a"]),
    "bytes": np.array([b"a", b"b", b"a"]),
    "variable text": np.array(["a", "bc", "a"], np.dtypes.StringDType()),
    "objects": np.array([1.5, None, "a"], object),
    "numbers as objects": np.array([1, 2.5, 3], object),
    "records": np.array(
        [(1, 2.5, "a"), (2, 3.5, "b"), (3, 4.5, "a")], [("i", int), ("x", float), ("s", "U1")]
    ),
    "dates": np.array(["2020-01-01", "NaT", "2021-03-05"], "M8[D]"),
    "times": np.array([5, 7, 9], "m8[s]"),
    "times with NaT": np.array([5, "NaT", 9], "m8[D]"),
    "void": np.array([b"ab", b"cd", b"ab"], "V2"),
    "a text": np.array("a"),
    "a date": np.array("2020-01-01", "M8[D]"),
    "text scalar": np.str_("a"),
    "date scalar": np.datetime64("2020-01-01"),
    "time scalar": np.timedelta64(5, "s"),
}

FUNCTIONS = {
    "t == 'a'": lambda t: t == "a",
    "'a' != t": lambda t: "a" != t,
    "t == b'a'": lambda t: t == b"a",
    "t == t": lambda t: t == t,
    "t < 'b'": lambda t: t < "b",
    "x[t == 'a']": lambda t: X[t == "a"],
    "where": lambda t: np.where(t == "a", 1.0, 2.0),
    "where of it": lambda t: np.where(X > 0, t, t),
    "ops.equal": lambda t: ops.equal(t, "a"),
    "in": lambda t: "a" in t,
    "isin": lambda t: np.isin(t, ["a"]),
    "char.upper": lambda t: np.char.upper(t),
    "strings.str_len": lambda t: np.strings.str_len(t),
    "field": lambda t: t["i"] * 2 + t["x"],
    "field of text": lambda t: X[t["s"] == "a"],
    "element": lambda t: t[0],
    "mask": lambda t: t[X > 0],
    "difference": lambda t: t - t[0],
    "t + t": lambda t: t + t,
    "t * 2": lambda t: t * 2,
    "x * t": lambda t: X * t,
    "hours": lambda t: t / np.timedelta64(1, "h"),
    "later": lambda t: t > np.datetime64("2020-06-01"),
    "tomorrow": lambda t: t + np.timedelta64(1, "D"),
    "isnat": np.isnat,
    "mean": np.mean,
    "mean method": lambda t: t.mean(),
    "sum": np.sum,
    "std": np.std,
    "median": np.median,
    "max": np.max,
    "diff": np.diff,
    "sort": np.sort,
    "unique": np.unique,
    "concatenate": lambda t: np.concatenate([t, t]),
    "full_like": lambda t: np.full_like(t, t[0]),
    "astype": lambda t: t.astype(object),
    "integers": lambda t: t.astype("i8"),
    "reshape": lambda t: t.reshape(-1, 1),
    "view": lambda t: t.view("u1"),
    "tolist": lambda t: t.tolist(),
    "iteration": lambda t: [part == "a" for part in t],
    "text of it": lambda t: f"{t} {t!r}",
    "dict": lambda t: {"a": 1, "b": 2}[t[0]],
    "shape": lambda t: (t.shape, t.dtype, len(t)),
    "itself": lambda t: t,
    "unused": lambda t: X * 2,
}


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error)


def is_same(a, b):
    if isinstance(a, type) and isinstance(b, type):
        return issubclass(a, Exception) == issubclass(b, Exception)
    if type(a) is not type(b) or getattr(a, "dtype", None) != getattr(b, "dtype", None):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return repr(getattr(a, "tolist", lambda: a)()) == repr(getattr(b, "tolist", lambda: b)())


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jitted_function_of_such_an_array_gives_what_the_function_gives(name):
    f = FUNCTIONS[name]
    for kind, t in ARRAYS.items():
        expected = outcome(f, t)
        captured = t.copy()
        calls = {
            "argument": (fdbr.jit(f), (t,)),
            "next to numbers": (fdbr.jit(lambda x, t: (2 * x, f(t))[1]), (X, t)),
            "captured": (fdbr.jit(lambda x, t=captured: (x, f(t))[1]), (X,)),
        }
        for where, (jitted, args) in calls.items():
            for _ in range(2):
                assert is_same(outcome(jitted, *args), expected), (kind, where)


def test_a_function_that_reads_such_an_array_runs_untraced_and_says_why():
    f = fdbr.jit(lambda x, t: x * (t == "a"))
    np.testing.assert_array_equal(f(X, ARRAYS["text"]), [0, 0, 2])
    assert "it uses an array of dtype <U1" in str(f.report())


def test_a_function_that_only_passes_such_an_array_on_is_traced():
    f = fdbr.jit(lambda x, batch: (2 * x, batch["name"]))
    for names in (["a", "b"], ["c", "d"]):
        x, found = f(X, {"name": np.array(names), "time": ARRAYS["times"]})
        np.testing.assert_array_equal(found, names)
        np.testing.assert_array_equal(x, 2 * X)
    assert len(f.programs()) == 1


def test_derivatives_select_by_text():
    def loss(x, t):
        return ops.sum(x[t == "a"] ** 2)

    for f in (fdbr.grad(loss), fdbr.jit(fdbr.grad(loss)), fdbr.grad(fdbr.jit(loss))):
        np.testing.assert_array_equal(f(X + 1, ARRAYS["text"]), [2, 0, 6])


def test_examples_of_a_batch_are_compared_as_text():
    f = fdbr.vmap(lambda t, x: np.where(t == "a", x, -x))
    np.testing.assert_array_equal(f(ARRAYS["text"], X), [0, -1, 2])


def test_a_mean_never_loses_the_unit_of_a_time():
    for f in (ops.mean, ops.std, ops.var, fdbr.vmap(np.mean)):
        with pytest.raises(TypeError, match="divide a time by its unit"):
            f(ARRAYS["times"][None])


def test_a_captured_date_may_be_missing():
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    f = fdbr.jit(lambda x: x[~np.isnat(dates)])
    for x in (np.ones(2), np.zeros(2)):
        np.testing.assert_array_equal(f(x), x[:1])
    dates[0] = "NaT"
    with pytest.raises(fdbr.ImpureError):
        f(np.ones(2))
