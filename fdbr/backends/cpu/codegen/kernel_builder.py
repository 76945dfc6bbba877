"""Kernels written by hand with the one builder: numbers with operators, loops, pointers, masks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fdbr.backends.cpu.codegen.llvm_instructions import Cell
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.llvm_text import Builder, Module
from fdbr.backends.cpu.codegen.llvm_values import BYTES, TYPES, Value, kind, suffix

__all__ = ["Function", "Kernel", "Number", "Variable"]


class Number:
    """A number, mask, vector or pointer of a kernel under construction.

    Operators emit instructions.  Indices are integers of 64 bits that are not negative: ``//`` and
    ``%`` divide them without signs.  ``pointer + index`` is the address of an element, and a vector
    of addresses if the index is a vector.
    """

    __slots__ = ("kernel", "value")

    def __init__(self, kernel: "Kernel", value: Value) -> None:
        self.kernel, self.value = kernel, value

    def _with(self, sign: str, other: Any, swapped: bool = False) -> "Number":
        pair = self.value, self.kernel.value_of(other)
        first, second = pair[::-1] if swapped else pair
        return Number(self.kernel, self.kernel.binary(sign, first, second))

    def _divided(self, name: str, other: Any) -> "Number":
        x, y = self.kernel.alike(self.value, self.kernel.value_of(other))
        return Number(self.kernel, self.kernel.like(x, f"{name} {x.typed}, {y.text}"))

    def _compared(self, sign: str, other: Any) -> "Number":
        found = self.kernel.compare(sign, self.value, self.kernel.value_of(other))
        return Number(self.kernel, found)

    def __add__(self, other: Any) -> "Number":
        if not self.value.is_pointer:
            return self._with("+", other)
        index = self.kernel.value_of(other)
        if index.text == "0":
            return self
        text = f"getelementptr {TYPES[self.value.type[1:]]}, {self.value.typed}, {index.typed}"
        return Number(self.kernel, self.kernel.like(index, text, self.value.type))

    def __sub__(self, other: Any) -> "Number":
        return self._with("-", other)

    def __rsub__(self, other: Any) -> "Number":
        return self._with("-", other, swapped=True)

    def __mul__(self, other: Any) -> "Number":
        return self._with("*", other)

    def __truediv__(self, other: Any) -> "Number":
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> "Number":
        return self._with("/", other, swapped=True)

    def __floordiv__(self, other: Any) -> "Number":
        return self._divided("udiv", other)

    def __mod__(self, other: Any) -> "Number":
        return self._divided("urem", other)

    def __neg__(self) -> "Number":
        return Number(self.kernel, self.kernel.negative(self.value))

    def __invert__(self) -> "Number":
        return Number(self.kernel, self.kernel.invert(self.value))

    def __and__(self, other: Any) -> "Number":
        return self._with("&", other)

    def __or__(self, other: Any) -> "Number":
        return self._with("|", other)

    def __xor__(self, other: Any) -> "Number":
        return self._with("^", other)

    def __lshift__(self, other: Any) -> "Number":
        return self._with("<<", other)

    def __rshift__(self, other: Any) -> "Number":
        return self._with(">>", other)

    def __gt__(self, other: Any) -> "Number":
        return self._compared(">", other)

    def __ge__(self, other: Any) -> "Number":
        return self._compared(">=", other)

    def __lt__(self, other: Any) -> "Number":
        return self._compared("<", other)

    def __le__(self, other: Any) -> "Number":
        return self._compared("<=", other)

    def equals(self, other: Any) -> "Number":
        """Emit whether it is equal, lane by lane; NaN never is."""
        return self._compared("==", other)

    def differs(self, other: Any) -> "Number":
        """Emit whether it is not equal, lane by lane."""
        return self._compared("!=", other)

    def within(self, stop: Any) -> "Number":
        """Emit whether an index is at least 0 and less than another, lane by lane."""
        x, y = self.kernel.alike(self.value, self.kernel.value_of(stop))
        return Number(self.kernel, self.kernel.like(x, f"icmp ult {x.typed}, {y.text}", "b1"))

    def spread(self, lanes: int) -> "Number":
        """Emit a vector that has the number in every lane."""
        return Number(self.kernel, self.kernel.spread(self.kernel.strong(self.value), lanes))

    def to(self, type: str) -> "Number":
        """Emit a conversion to another type."""
        return Number(self.kernel, self.kernel.cast(self.value, type))

    def as_bits(self, type: str) -> "Number":
        """Emit the number of another type that has the same bits."""
        text = f"bitcast {self.value.typed} to {kind(type, self.value.lanes)}"
        return Number(self.kernel, self.kernel.like(self.value, text, type))

    def by(self, distance: Any) -> "Number":
        """Emit the pointer that is a distance in bytes away."""
        far = self.kernel.value_of(distance)
        text = f"getelementptr i8, {self.value.typed}, {far.typed}"
        return Number(self.kernel, self.kernel.like(far, text, self.value.type))


class Variable:
    """A number that loops and branches may change, with its current ``value``."""

    __slots__ = ("_cell", "_first")

    def __init__(self, first: Number) -> None:
        self._first = first
        value = first.kernel.strong(first.value)
        self._cell = Cell(kind(value.type, value.lanes), value.text)
        first.kernel.cells = [*first.kernel.cells, self._cell]

    @property
    def value(self) -> Number:
        kernel, value = self._first.kernel, self._first.value
        return Number(kernel, Value(value.type, self._cell.text, lanes=value.lanes))

    @value.setter
    def value(self, new: Number) -> None:
        self._cell.text = new.value.text


class Kernel(Builder):
    """A kernel, or another function of its module, under construction.

    Parameters
    ----------
    table
        The names of the entries of the kernel's table.
    pointers
        The types of elements, by name, of the entries that are addresses.
    module
        The module, if it has other functions.
    """

    def __init__(
        self,
        table: Sequence[str] = (),
        pointers: Mapping[str, str] | None = None,
        module: Module | None = None,
    ) -> None:
        super().__init__(module or Module())
        self.load_table(table, pointers or {})
        self.start, self.stop = self.register("%start"), self.register("%stop")

    def load_table(
        self, table: Sequence[str], pointers: Mapping[str, str], base: str = "table"
    ) -> None:
        """Emit loads of the entries of the table in a register; ``word`` has them by name."""
        self.lines.append(words(table, pointers, base=base))
        types = [f"*{pointers[name]}" if name in pointers else "i8" for name in table]
        registers = [
            self.register(f"%{name}", type) for name, type in zip(table, types, strict=True)
        ]
        self.word = dict(zip(table, registers, strict=True))

    # --- numbers

    def register(self, name: str, type: str = "i8") -> Number:
        """Return the number in a register."""
        return Number(self, Value(type, name))

    def value_of(self, number: Any) -> Value:
        """Return a number, or a constant, as the builder's value."""
        return number.value if isinstance(number, Number) else self.literal(number)

    def index(self, number: Any) -> Number:
        """Return an index, or a constant one."""
        if isinstance(number, Number):
            return number
        return Number(self, Value("i8", str(number)))

    def constant(self, number: Any, type: str, lanes: int = 1) -> Number:
        """Return a constant in every lane."""
        return Number(self, self.spread(self.strong(self.cast(self.literal(number), type)), lanes))

    def count_up(self, lanes: int, step: int = 1) -> Number:
        """Return the vector ``0, step, 2 * step, …``."""
        text = ", ".join(f"i64 {k * step}" for k in range(lanes))
        return Number(self, Value("i8", f"<{text}>", lanes=lanes))

    def choose(self, mask: Number, x: Any, y: Any) -> Number:
        """Emit ``x`` where a mask is true, and elsewhere ``y``."""
        return Number(self, self.select(mask.value, self.value_of(x), self.value_of(y)))

    def apply(self, name: str, *numbers: Any) -> Number:
        """Emit one of LLVM's functions of numbers of one type."""
        values = self.alike(*[self.value_of(number) for number in numbers])
        return Number(self, self.called_on(name, *values))

    def any(self, mask: Number) -> Number:
        """Emit whether a mask is true in any lane."""
        value = mask.value
        name = f"llvm.vector.reduce.or.{suffix('b1', value.lanes)}"
        given = kind("b1", value.lanes), value.text
        return Number(self, Value("b1", self.call(name, "i1", given)))

    def folded(self, number: Number, how: Callable[[Number, Number], Number]) -> Number:
        """Emit the combination of a vector's lanes, in every lane; halves are combined first."""
        value, step = number.value, number.value.lanes // 2
        while step:
            value = number.value
            nothing = Number(self, value._replace(text="poison"))
            other = self.shuffled(number, nothing, [k ^ step for k in range(value.lanes)])
            number = how(number, other)
            step //= 2
        return number

    def shuffled(self, x: Number, y: Number, order: Sequence[int]) -> Number:
        """Emit lanes of two vectors, by their numbers, as a vector of the same length."""
        lanes = ", ".join(f"i32 {k}" for k in order)
        text = f"shufflevector {x.value.typed}, {y.value.typed}, <{len(order)} x i32> <{lanes}>"
        return Number(self, self.like(x.value, text))

    def lane(self, number: Number, lane: int = 0) -> Number:
        """Emit one lane of a vector."""
        value = number.value
        text = self.add(f"extractelement {value.typed}, i64 {lane}")
        return Number(self, Value(value.type, text))

    # --- memory

    def load(
        self,
        at: Number,
        lanes: int = 1,
        mask: Number | None = None,
        align: int = 0,
        otherwise: Number | None = None,
    ) -> Number:
        """Emit a load of an element, of adjacent ones, or of those at a vector of addresses.

        Lanes that a mask excludes get those of ``otherwise``, by default zeros.
        """
        type = at.value.type[1:]
        bound, apart = align or BYTES[type], at.value.lanes > 1
        many = kind(type, max(lanes, at.value.lanes))
        if mask is None and not apart:
            text = self.add(f"load {many}, {at.value.typed}, align {bound}")
            return Number(self, Value(type, text, lanes=lanes))
        lanes = max(lanes, at.value.lanes)
        how = (
            f"gather.{suffix(type, lanes)}.v{lanes}p0"
            if apart
            else f"load.{suffix(type, lanes)}.p0"
        )
        text = self.call(
            f"llvm.masked.{how}",
            many,
            (kind(at.value.type, at.value.lanes), at.value.text),
            ("i32", str(bound)),
            (kind("b1", lanes), mask.value.text if mask else "splat (i1 true)"),
            (many, otherwise.value.text if otherwise else "zeroinitializer"),
        )
        return Number(self, Value(type, text, lanes=lanes))

    def store(self, at: Number, number: Any, mask: Number | None = None, align: int = 0) -> None:
        """Emit a store of a number or a vector, or of a vector's elements at several addresses."""
        type = at.value.type[1:]
        number = self.strong(self.cast(self.value_of(number), type))
        bound, apart = align or BYTES[type], at.value.lanes > 1
        if mask is None and not apart:
            self.do(f"store {number.typed}, {at.value.typed}, align {bound}")
            return
        lanes = number.lanes
        how = (
            f"scatter.{suffix(type, lanes)}.v{lanes}p0"
            if apart
            else f"store.{suffix(type, lanes)}.p0"
        )
        self.call(
            f"llvm.masked.{how}",
            "void",
            (kind(type, lanes), number.text),
            (kind(at.value.type, at.value.lanes), at.value.text),
            ("i32", str(bound)),
            (kind("b1", lanes), mask.value.text if mask else "splat (i1 true)"),
        )

    def copy(self, to: Number, source: Number, count: Number) -> None:
        """Emit a copy of some bytes."""
        given = ("ptr", to.value.text), ("ptr", source.value.text), ("i64", count.value.text)
        self.call("llvm.memcpy.p0.p0.i64", "void", *given, ("i1", "false"))

    def clear(self, to: Number, count: Number) -> None:
        """Emit stores of zeros to some bytes."""
        given = ("ptr", to.value.text), ("i8", "0"), ("i64", count.value.text), ("i1", "false")
        self.call("llvm.memset.p0.i64", "void", *given)

    def allocate(self, type: str, count: Any, align: int = 64) -> Number:
        """Emit an allocation of elements, which lives as long as the kernel runs."""
        text = f"alloca {TYPES[type]}, {self.index(count).value.typed}, align {align}"
        return Number(self, Value(f"*{type}", self.add(text)))

    def pointer_to(self, address: Number, type: str) -> Number:
        """Emit a pointer from an address that is an integer."""
        return Number(self, Value(f"*{type}", self.pointer(address.value)))

    def call_address(self, function: Number, *given: Number) -> None:
        """Emit a call of the function at an address."""
        self.do(f"call void {function.value.text}({', '.join([x.value.typed for x in given])})")

    # --- control

    @contextmanager
    def each(self, start: Any, stop: Any, step: Any = 1) -> Iterator[Number]:
        """Emit a loop; yields its index."""
        first, end, by = (self.index(number).value.text for number in (start, stop, step))
        with self.loop(first, end, by) as name:
            yield self.register(name)

    def repeat(
        self, start: Any, stop: Any, body: Callable[..., Any], *carried: Number, step: Any = 1
    ) -> list[Number]:
        """Emit a loop; the body maps an index and the carried numbers to their next values."""
        before = self.cells
        variables = [Variable(number) for number in carried]
        own = self.cells
        with self.each(start, stop, step) as index:
            self.cells = before  # loops in the body carry numbers of their own
            made = body(index, *[variable.value for variable in variables])
            self.cells = own
            made = made if isinstance(made, (tuple, list)) else (made,)
            for variable, number in zip(variables, made if carried else (), strict=True):
                variable.value = number
        self.cells = before
        return [variable.value for variable in variables]

    @contextmanager
    def when(self, flag: Number) -> Iterator[None]:
        """Emit instructions that are executed only if a flag is set."""
        with self.where(flag.value.text):
            yield

    def computed_if(self, flag: Number, body: Callable[[], Number], otherwise: Number) -> Number:
        """Emit a number that is computed only if a flag is set; elsewhere it is another one."""
        before = self.cells
        variable = Variable(otherwise)
        with self.when(flag):
            variable.value = body()
        self.cells = before
        return variable.value

    def call_function(self, function: "Function", *given: Number) -> None:
        """Emit a call of another function of the module."""
        self.do(f"call void @{function.symbol}({', '.join([x.value.typed for x in given])})")

    # --- the whole

    def text(self, head: str = HEAD) -> str:
        """Return the module, after the kernel's body has been emitted."""
        return f"{self.module.text()}\n{self.body(head)}"

    def body(self, head: str) -> str:
        """Return the function with some head, after its instructions have been emitted."""
        lines = "\n".join(self.lines)
        return f"{head}{lines}\n  ret void\n}}\n"


class Function(Kernel):
    """Another function of a kernel's module, with parameters of its own.

    Parameters
    ----------
    module, name
        The module, and the function's name in it.
    parameters
        The types of its parameters, by name.
    """

    def __init__(self, module: Module, name: str, parameters: Mapping[str, str]) -> None:
        super().__init__(module=module)
        self.symbol = name
        self.parameters = [self.register(f"%in.{key}", type) for key, type in parameters.items()]

    def end(self) -> None:
        """Add the function to its module."""
        given = ", ".join([x.value.typed for x in self.parameters])
        head = f"define internal void @{self.symbol}({given}) {{\nentry:\n"
        self.module.texts.append(self.body(head))
