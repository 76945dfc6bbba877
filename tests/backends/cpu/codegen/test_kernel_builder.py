"""Kernels that are written with numbers, loops and branches of the builder."""

from array import array

import numpy as np

from fdbr.backends.cpu.codegen.kernel_builder import Function, Kernel, Number, Variable
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import launch


def _run(kernel: Kernel, units: int, *words: int | np.ndarray) -> None:
    addresses = [w.ctypes.data if isinstance(w, np.ndarray) else w for w in words]
    table = array("q", addresses)
    launch(address_of(kernel.text()), table.buffer_info()[0], units, 1, 1)


def test_a_loop_carries_numbers_and_branches_change_variables():
    kernel = Kernel(("x", "out", "count"), {"x": "f8", "out": "f8"})
    x, out, count = kernel.word.values()
    negative = Variable(kernel.index(0))

    def add(i: Number, total: Number) -> Number:
        value = kernel.load(x + i)
        with kernel.when(value < 0):
            negative.value = negative.value + 1
        return total + value

    (total,) = kernel.repeat(0, count, add, kernel.constant(0, "f8"))
    kernel.store(out, total)
    kernel.store(out + 1, negative.value.to("f8"))
    given, found = np.array([1.5, -2.0, 4.0, -0.5]), np.empty(2)
    _run(kernel, 1, given, found, 4)
    assert found.tolist() == [3.0, 2.0]
    _run(kernel, 1, given, found, 0)
    assert found.tolist() == [0.0, 0.0]


def test_masked_vectors_leave_other_elements_alone():
    kernel = Kernel(("x", "out", "count"), {"x": "f4", "out": "f4"})
    x, out, count = kernel.word.values()
    with kernel.each(0, count, 8) as i:
        mask = kernel.count_up(8) < (count - i).spread(8)
        kernel.store(out + i, kernel.load(x + i, 8, mask) * 2 + 1, mask)
    given, found = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    _run(kernel, 1, given, found, 11)
    assert found.tolist() == [*(2 * given[:11] + 1), *[0] * 5]


def test_vectors_of_addresses_gather_and_scatter():
    kernel = Kernel(("x", "out"), {"x": "f8", "out": "f8"})
    x, out = kernel.word.values()
    kernel.store(out + kernel.count_up(4, 2), kernel.load(x + kernel.count_up(4, 3)))
    given, found = np.arange(12.0), np.zeros(8)
    _run(kernel, 1, given, found)
    assert found.tolist() == [0, 0, 3, 0, 6, 0, 9, 0]


def test_allocations_of_one_size_are_different_memory():
    kernel = Kernel(("out",), {"out": "i8"})
    first, second = kernel.allocate("i8", 4), kernel.allocate("i8", 4)
    kernel.store(first, 1)
    kernel.store(second, 2)
    kernel.store(kernel.word["out"], kernel.load(first))
    found = np.zeros(1, np.int64)
    _run(kernel, 1, found)
    assert found[0] == 1


def test_functions_of_a_module_have_parameters_and_numbers_may_be_computed_under_a_condition():
    kernel = Kernel(("out",), {"out": "i8"})
    square = Function(kernel.module, "square", {"x": "i8", "to": "*i8"})
    x, to = square.parameters
    odd = (x % 2).equals(1)
    square.store(to, square.computed_if(odd, lambda: x * x, square.index(-1)))
    square.end()
    with kernel.each(kernel.start, kernel.stop) as i:
        kernel.call_function(square, i, kernel.word["out"] + i)
    found = np.zeros(5, np.int64)
    _run(kernel, 5, found)
    assert found.tolist() == [-1, 1, -1, 9, -1]
