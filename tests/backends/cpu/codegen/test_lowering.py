"""The kernel language: what a kernel does is what Python does with the same text."""

import ast
import math
import operator
import textwrap
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr.backends.cpu.codegen import kernel_functions
from fdbr.backends.cpu.codegen.kernel_functions import function
from fdbr.backends.cpu.codegen.llvm_lowering import lower
from fdbr.backends.cpu.codegen.llvm_values import KernelError
from fdbr.backends.cpu.runtime import compiling
from fdbr.backends.cpu.runtime.compiling import front_end, translated
from fdbr.backends.cpu.runtime.launching import launch_alone
from fdbr.backends.cpu.runtime.machine import code, optimized_code, placed

INTEGERS = [-9, -7, -6, -1, 0, 1, 2, 5, 6, 9]
RANGES = [(0, 1), (0, 3), (2, 6), (0, 8), (1, 24), (0, 40), (0, 64), (5, 82)]
DTYPES = {"f4": np.float32, "f8": np.float64, "i4": np.int32, "i8": np.int64}
PYTHON = {
    "f4": float,
    "f8": float,
    "i4": int,
    "i8": int,
    "u1": int,
    "nan": math.nan,
    "plus": operator.add,
    "larger": max,
    "smaller": min,
    "select": lambda condition, chosen, otherwise: chosen if condition else otherwise,
}


@function()
def halved(x):
    return x / 2


@function()
def fallen(x, count):
    for i in range(count):
        x = halved(x) - i
    return x


@function()
def fill(to, count, value):
    for i in range(count):
        to[i] = value


@function()
def endless(x):
    return endless(x)


OWN = {"halved": halved, "fallen": fallen, "fill": fill, "endless": endless}


def source(body, codes):
    """A kernel of some statements on arrays of some dtypes, ``a``, ``b`` and so on."""
    heads = [f"{name} = data(table, {i}, {code}(0))" for i, (name, code) in enumerate(codes)]
    text = "\n".join([*heads, textwrap.dedent(body).strip()])
    return "def kernel(table, start, stop, thread):\n" + textwrap.indent(text, "    ")


def check(body, *arrays, stop=0):
    """Check that a kernel does with arrays what Python does with lists of their elements."""
    arrays = [np.array(array) for array in arrays]
    names = "abcdefgh"[: len(arrays)]
    lists = {name: array.tolist() for name, array in zip(names, arrays, strict=True)}
    scope = PYTHON | lists | {"start": 0, "stop": stop, "thread": 0}
    for name, own in OWN.items():
        scope[name] = FunctionType(own.python.__code__, scope)
    exec(textwrap.dedent(body), scope)
    codes = [(name, array.dtype.str[1:]) for name, array in zip(names, arrays, strict=True)]
    text, final = lower(source(body, codes), compiling._scope() | OWN)
    address = placed("kernel", code(text) if final else optimized_code(text))
    table = np.array([id(array) for array in arrays], np.int64)
    launch_alone(address, table.ctypes.data, stop)
    for name, array in zip(names, arrays, strict=True):
        np.testing.assert_array_equal(array, np.array(lists[name], array.dtype), name)


def refused(body, *codes):
    with pytest.raises(KernelError) as caught:
        translated(source(body, list(zip("abcdefgh", codes, strict=False))))
    return str(caught.value)


def elementwise(texts, *arrays):
    """Check expressions of an element of each of some arrays."""
    names = "abcdefgh"[: len(arrays)]
    lines = ["for r in range(stop):", *[f"    {name.upper()} = {name}[r]" for name in names]]
    outs = "abcdefgh"[len(arrays) : len(arrays) + len(texts)]
    lines += [f"    {out}[r] = {text}" for out, (text, _) in zip(outs, texts, strict=True)]
    count = len(arrays[0])
    results = [np.zeros(count, code) for _, code in texts]
    check("\n".join(lines), *arrays, *results, stop=count)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_divided_rounding_down_whatever_their_signs(dtype):
    pairs = np.array([(a, b) for a in INTEGERS for b in INTEGERS if b], dtype).T.copy()
    elementwise([("A // B", "i8"), ("A % B", "i8"), ("A / B", "f8")], *pairs)
    elementwise([(f"A {sign} {d}", "i8") for sign in ("//", "%") for d in (3, -4, 1)], pairs[0])


def test_integers_are_shifted_joined_and_compared():
    pairs = np.array([(a, b) for a in INTEGERS for b in (0, 1, 3, 6)]).T.copy()
    elementwise([(f"A {sign} B", "i8") for sign in ("<<", ">>", "&", "|", "^", "*")], *pairs)
    texts = ["~A", "-A", "+A", "abs(A)", "min(A, B, 2)", "max(A, B)"]
    elementwise([(text, "i8") for text in texts], *pairs)
    texts = ["A < B", "A <= B < 4", "not A", "A == B or B > 2", "(A > 1) & (B > 1)", "A and B > 1"]
    elementwise([(f"u1({text})", "u1") for text in texts], *pairs)


def test_what_is_no_number_equals_nothing_and_is_less_than_nothing():
    pairs = np.array([(a, b) for a in (math.nan, 1.0, 2.0) for b in (math.nan, 1.0, 2.0)]).T.copy()
    texts = ["A == B", "A != B", "A < B", "A >= B", "A != nan", "not A < B"]
    elementwise([(f"u1({text})", "u1") for text in texts], *pairs)


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_types_mix_as_those_of_numpy_do(left, right):
    expected = np.result_type(DTYPES[left], DTYPES[right]).str[1:]
    text, _ = translated(source("c[0] = a[0] * b[0]", [("a", left), ("b", right), ("c", "f8")]))
    name = {"f4": "fmul float", "f8": "fmul double", "i4": "mul i32", "i8": "mul i64"}[expected]
    assert f" = {name} " in text


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_numbers_that_are_written_down_take_the_type_of_what_they_meet(code):
    x = np.array([1.1, -0.3], code)
    out = np.zeros(2, code)
    text = source(
        "for r in range(stop):\n    b[r] = (2 * a[r] + 0.1) / 3", [("a", code), ("b", code)]
    )
    launch_alone(compiling.address_of(text), np.array([id(x), id(out)], np.int64).ctypes.data, 2)
    np.testing.assert_array_equal(out, (2 * x + x.dtype.type(0.1)) / 3)


def test_numbers_are_converted_as_they_are_stored_and_cast():
    elementwise([("A", "i4"), ("i4(A)", "i8"), ("f8(i8(A))", "f8")], [-2.5, -1.0, 0.5, 3.99])
    elementwise([("A", "f8"), ("u1(A > 0) + A", "f4")], np.array([-3, 0, 4], np.int32))


@pytest.mark.parametrize("stop", [0, 1, 2, 7])
def test_loops_run_as_often_as_pythons(stop):
    check(
        """
        n = 0
        for i in range(stop):
            n += 1
            for j in range(i, stop):
                n = n + i * j
        a[0] = n
        for i in range(1, stop, 3):
            a[1] += i
        for i in range(stop, 0, -2):
            a[2] = 2 * a[2] + i
        for i in range(3, 3):
            a[3] = 5
        for i in range(2, 5):
            last = i
        a[4] = last
        k, product = stop, 1
        while k > 1 and product < 100:
            product *= k
            k -= 1
        a[5], a[6] = product, k
        """,
        np.zeros(7, np.int64),
        stop=stop,
    )


@pytest.mark.parametrize("stop", range(4))
def test_what_is_chosen_is_what_python_chooses(stop):
    check(
        """
        x, y = 1, 2.5
        if stop > 1:
            x = 7
            if stop == 3:
                y = -y
        else:
            x, y = x + 1, y * 2
        b[0] = y if stop else -1
        a[0] = x
        a[1] = 3 if x < 5 or a[x - 7] == 9 else 4
        """,
        [9, 0],
        [0.0],
        stop=stop,
    )


def test_names_that_are_assigned_together_are_exchanged():
    check(
        "x, y = 1, 2\nfor i in range(stop):\n    x, y = y, x + y\na[0], a[1] = x, y", [0, 0], stop=9
    )


def test_a_name_may_have_another_type_later():
    check(
        """
        for i in range(stop):
            t = 0.5
            b[i] += t
        for i in range(2):
            t = 3
            a[i] += t
        t = 0.25
        b[0] *= t
        """,
        [1, 2],
        [1.0, 2.0],
        stop=2,
    )


def test_functions_call_functions_for_the_types_they_are_given():
    check(
        """
        a[0] = fallen(a[0], 3)
        b[0] = halved(b[0])
        fill(b, stop, a[0])
        """,
        [5.0],
        np.zeros(3, np.float32),
        stop=2,
    )


def test_errors_say_what_the_language_lacks_and_where():
    assert refused("x = [1]") == "kernel, line 2: the kernel language has no List"
    assert "no With" in refused("with a:\n    pass", "f8")
    assert "no Break" in refused("while stop:\n    break")
    assert "is called y" in refused("x = y")
    assert "no function is called print" in refused("print(1)")
    assert "a.b" in refused("x = a.b(1)", "f8")
    assert "other arguments" in refused("x = select(stop, 1)")
    assert "over a range" in refused("for i in a:\n    pass", "f8")
    assert "over a range" in refused("for i in range(3):\n    pass\nelse:\n    pass")
    assert "step of a range is 0" in refused("for i in range(0, 3, 0):\n    pass")
    assert "range is of integers" in refused("for i in range(a[0]):\n    pass", "f8")
    assert "as many values" in refused("x, y = 1, 2, 3")
    assert "one target" in refused("x = y = 1")
    text = source("x = fill(a, stop, a[0])", [("a", "f8")])
    with pytest.raises(KernelError, match="gives nothing"):
        lower(text, compiling._scope() | OWN)
    assert "not used" in refused("start + 1")
    assert "f8 % f8" in refused("x = a[0] % a[0]", "f8")
    assert "f4 has no elements" in refused("x = a[0][1]", "f4")
    assert "f4 is no index" in refused("x = a[a[0]]", "f4")
    assert "no common type" in refused("x = a + 1", "f4")
    assert "no value is 'text'" in refused("x = 'text'")
    assert "fabs" not in refused("x = sqrt(start)")
    with pytest.raises(KernelError, match="endless calls itself"):
        lower(source("a[0] = endless(1.0)", [("a", "f8")]), compiling._scope() | OWN)


def test_names_without_a_value_or_with_two_types_are_refused():
    assert "x may have no value" in refused("if start:\n    x = 1\nstart = x")
    assert "x may have no value" in refused("for i in range(stop):\n    x = 1\nstart = x")
    assert "i has no value after" in refused("for i in range(3):\n    x = i\nstart = i")
    assert "may be f8 or i8" in refused("x = 1\nif start:\n    x = 0.5\nstart = x")
    text = refused("x = 1\nfor i in range(stop):\n    x = x + 0.5\nstart = x")
    assert "x is i8 before a loop" in text
    text = refused("x = 1\nfor i in range(stop):\n    x = 0.5\nstart = x")
    assert "x is i8 before a loop" in text


@pytest.mark.parametrize(
    ("rows", "width", "kind"),
    [
        ("range(start, stop)", 8, "its elements follow one another"),
        ("range(300)", 2, "its elements lie apart"),
        ("range(start, stop)", 2, "LLVM takes several rows"),
        ("range(3000)", 2, "LLVM takes several rows"),
    ],
)
def test_rows_shorter_than_a_vector_are_computed_in_vectors(rows, width, kind):
    body = f"""
    for r in {rows}:
        for c in range({width}):
            c_{width} = a[r * {width} + c] * b[c]
            d[r * {width} + c] = floor(c_{width}) + a[r * {width} + c]
    """
    text, final = translated(source(body, [(name, "f4") for name in "abcd"]))
    assert ("x float> @llvm.floor" in text) == final == (kind != "LLVM takes several rows")
    assert ("llvm.masked.gather" in text) == (kind == "its elements lie apart")


PLACE = st.integers(0, 6).map("i + {}".format)
READ = st.tuples(st.sampled_from("abc"), PLACE).map("{0[0]}[{0[1]}]".format) | st.sampled_from(
    ["a[3]", "b[stop]", "c[9]", "f4(i)", "2"]
)
VALUE = st.tuples(READ, st.sampled_from("+-"), READ).map("{0[0]} {0[1]} {0[2]}".format)
CHANGE = st.one_of(  # all numbers stay whole and small, so that sums are exact in any order
    st.tuples(st.sampled_from("abc"), PLACE, VALUE).map(
        "{0[0]}[{0[1]}] = select(abs({0[2]}) > 9, 1, {0[2]})".format
    ),
    st.tuples(VALUE, PLACE).map("x = {0[0]}; c[{0[1]}] = select(x > 3, 1, x - x)".format),
    VALUE.map("total = plus(total, f4({}))".format),
    VALUE.map("most = larger(most, f4({}))".format),
    VALUE.map("least = smaller(least, f4({}))".format),
    VALUE.map("found |= {} > 3".format),
)


@given(
    st.lists(CHANGE, min_size=1, max_size=3),
    st.sampled_from([(0, "stop"), (3, "stop"), ("start", "stop - 2"), ("stop", 12), *RANGES]),
    st.sampled_from(["d8", "f4", "f8"]),
    st.sampled_from([1, 3]),
    st.integers(0, 40),
)
def test_loops_of_vectors_do_what_loops_of_numbers_do(changes, bounds, dtype, rounds, stop):
    lines = textwrap.indent("\n".join(changes), " " * 8)
    first, end = bounds
    body = f"""
total, most, least, found = f4(0), f4(-99), f4(99), False
for r in range({rounds}):
    for i in range({first}, {end}):
{lines}
    d[r] = total + most + least + u1(found)
"""
    dtypes = ["f4", "f8", "f4"] if dtype == "d8" else [dtype] * 3
    arrays = [np.arange(90) * k % 8 - 3 for k in (1, 3, 5)]
    arrays = [x.astype(code) for x, code in zip(arrays, dtypes, strict=True)]
    check(body, *arrays, np.zeros(3), stop=stop)


FAR = st.tuples(st.integers(0, 4), st.sampled_from(["j + ", ""]), st.integers(0, 5)).map(
    "i * {0[0]} + {0[1]}{0[2]}".format
)
FAR_READ = st.tuples(st.sampled_from("abc"), FAR).map("{0[0]}[{0[1]}]".format)
FAR_CHANGE = st.tuples(st.sampled_from("abc"), FAR, FAR_READ, FAR_READ).map(
    "{0[0]}[{0[1]}] = select(abs({0[2]} + {0[3]}) > 9, 1, {0[2]} + {0[3]})".format
)


@given(
    st.lists(FAR_CHANGE, min_size=1, max_size=3),
    st.integers(5, 40),
    st.integers(2, 4),
    st.sampled_from(["f4", "f8", "i8"]),
    st.booleans(),
)
def test_loops_around_short_loops_do_what_loops_of_numbers_do(changes, rows, width, dtype, sums):
    lines = textwrap.indent("\n".join(changes), " " * 8)
    adds = "        t = t + c[i * 2 + j]\n" if sums else ""
    body = f"""
for i in range({rows}):
    t = {dtype}(0)
    for j in range({width}):
{lines}
{adds}
    d[i] = t
"""
    arrays = [(np.arange(200) * k % 8 - 3).astype(dtype) for k in (1, 3, 5)]
    check(body, *arrays, np.zeros(rows))


def test_numbers_of_two_lengths_meet_in_a_loop_of_vectors():
    body = """
    for i in range(stop):
        b[i] = a[i] * 3
        c[i] = i4(i) + i4(b[i])
        d[i] = u1(b[i] > c[i]) + u1(i > 20)
    """
    x = np.arange(40.0, dtype=np.float32) - 20
    for stop in (0, 5, 16, 33):
        check(body, x, np.zeros(40), np.zeros(40, np.int32), np.zeros(40, np.uint8), stop=stop)


def test_a_text_is_parsed_again_where_threads_have_disturbed_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [SystemError("AST constructor recursion depth mismatch"), "tree"]

    def parse(text: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(kernel_functions.ast, "parse", parse)
    assert kernel_functions.parsed("x") == "tree"


def test_kernels_on_disk_are_forgotten_where_anything_that_translates_them_changes():
    texts = front_end()
    folder = "fdbr.backends.cpu."
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(folder):
                module = node.module.removeprefix(folder)
                assert module in texts or {f"{module}.{name.name}" for name in node.names} <= set(
                    texts
                )
    expected = "llvm_lowering vector_loops loop_pieces vector_text intrinsics".split()
    assert texts.keys() >= {"runtime.machine", *(f"codegen.{name}" for name in expected)}
