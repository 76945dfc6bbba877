"""Texts, bytes and sequences made of a traced Python number are those of the number."""

# ruff: noqa: UP031

import string

import numpy as np
import pytest

import fdbr

TEXTS = {
    '"%s" % n': lambda n: "ab%s" % n,
    '"%r" % (n,)': lambda n: "%r" % (n,),
    '"%d" % n': lambda n: "%d" % n,
    '"%5.2f" % n': lambda n: "%5.2f" % n,
    '"%x" % n': lambda n: "%x" % n,
    '"%*d" % (n, 7)': lambda n: "%*d" % (n, 7),
    '"%(n)d" % {...}': lambda n: "%(n)d" % {"n": n},
    'f"{n}"': lambda n: f"{n}",
    'f"{n!r}"': lambda n: f"{n!r}",
    'f"{n:d}"': lambda n: f"{n:d}",
    'f"{7:{n}d}"': lambda n: f"{7:{n}d}",
    "str.format": lambda n: f"{n:03d}",
    "format_map": lambda n: "{n:+}".format_map({"n": n}),
    "format": lambda n: format(n, "b"),
    "Template": lambda n: string.Template("$n").substitute(n=n),
    "str": str,
    "repr": repr,
    "hex": hex,
    "bin": bin,
    "chr": lambda n: chr(n + 60),
    '"x" * n': lambda n: "x" * n,
    'n * "x"': lambda n: n * "x",
    'b"%d" % n': lambda n: b"%d" % n,
    'b"x" * n': lambda n: b"x" * n,
    "bytes": bytes,
    "bytes([n])": lambda n: bytes([n]),
    "bytearray": lambda n: bytes(bytearray(b"%d") % n),
    "to_bytes": lambda n: (7).to_bytes(n, "big"),
    "[0] * n": lambda n: [0] * n,
    "range": lambda n: list(range(n)),
    '"abc"[n]': lambda n: "abcdefgh"[n],
    '"abc"[:n]': lambda n: "abcdefgh"[:n],
    "zfill": lambda n: "7".zfill(n),
    "join": lambda n: ",".join(map(str, [n, n])),
    "key": lambda n: {3: "a", 4: "b", 5: "c", 1: "d"}[n],
    "round": lambda n: round(3.14159, n),
    '"a" + n': lambda n: "a" + n,
    '"a" == n': lambda n: n == "a",
}


def outcome(f, n):
    """The result of a call, or the class of its error."""
    try:
        return f(n)
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("numbers", [(3, 4, 5), (3.0, 4.5), (True, False), tuple(np.arange(3, 6))])
@pytest.mark.parametrize("name", TEXTS)
def test_a_jitted_function_makes_the_text_of_each_number(name, numbers):
    jitted = fdbr.jit(TEXTS[name])
    for n in (*numbers, *numbers):
        expected = outcome(TEXTS[name], n)
        found = outcome(jitted, n)
        assert found == expected
        assert type(found) is type(expected)
