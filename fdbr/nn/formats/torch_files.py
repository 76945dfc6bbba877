"""Tensors in files of ``torch.save``, read without PyTorch, and without unpickling.

Such a file holds a program for pickle's virtual machine, which could call any function.  It is not
run here: an interpreter follows the few instructions that state dicts consist of, calls only the
constructors of tensors and ordered dicts, and raises for anything else.
"""

import io
import math
import operator
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import numpy as np

__all__ = ["read_torch"]

_DTYPES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "bf16",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "?", "ComplexDoubleStorage": "<c16",
    "ComplexFloatStorage": "<c8", "UntypedStorage": "u1",
}  # fmt: skip
_LEGACY = 0x1950A86A20F9469CFC6C
_LONGEST = 1 << 24  # bytes of a program: it lists tensors, and does not hold their elements
_DAMAGES = (
    *(zipfile.BadZipFile, NotImplementedError, EOFError, OverflowError, RecursionError),
    *(OSError, struct.error, RuntimeError, MemoryError),
    *(ValueError, TypeError, IndexError, KeyError, AttributeError),
)  # errors raised for damaged programs and archives


class _BadFileError(ValueError):
    """A file is not as ``torch.save`` writes it."""


@attrs.frozen
class _Global:
    """The name of a function or class; nothing is imported for it."""

    name: str


@attrs.frozen
class _Storage:
    """The elements of one or more tensors: how they are read, and their dtype."""

    key: str
    dtype: str
    count: int
    read: Callable[[int], Any]


@attrs.frozen
class _Tensor:
    """A tensor in a file, which is read lazily."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return np.dtype("float32" if self.storage.dtype == "bf16" else self.storage.dtype)

    def read(self) -> Any:
        """Return the elements; bfloat16 as float32."""
        kind = np.dtype("<u2" if self.storage.dtype == "bf16" else self.storage.dtype)
        numbers = np.frombuffer(self.storage.read(self.storage.count * kind.itemsize), kind)
        strides = tuple(stride * kind.itemsize for stride in self.strides)
        rest = numbers[self.offset :]
        array = np.lib.stride_tricks.as_strided(rest, self.shape, strides, writeable=False)
        if self.storage.dtype == "bf16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(self.dtype, copy=False)


def read_torch(function: str, path: Path) -> Any:
    """Read a file of ``torch.save``; its tensors have a shape, a dtype and `read`."""
    where = f"fdbr.nn.{function}: {path}"
    try:
        if zipfile.is_zipfile(path):
            return _zipped(path)
        return _legacy(path)
    except _BadFileError as error:
        raise ValueError(
            f"{where} {error}; in PyTorch, save module.state_dict() alone, or convert the file "
            "with safetensors.torch.save_file"
        ) from None
    except _DAMAGES as error:
        raise ValueError(
            f"{where} is no file of torch.save and no safetensors file, or is damaged: "
            f"{type(error).__name__}: {error}"
        ) from error


def _zipped(path: Path) -> Any:
    size = os.stat(path).st_size
    with zipfile.ZipFile(path) as archive:
        infos = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        total = sum(info.file_size for info in infos.values())
        if total > size or any(info.compress_type for info in infos.values()):
            raise _BadFileError("is a compressed archive, as torch.save writes none")
        if "data.pkl" not in infos:
            raise _BadFileError("is a zip archive without a data.pkl, as torch.save writes one")
        if "byteorder" in infos and archive.read(infos["byteorder"]).strip() != b"little":
            raise _BadFileError("was written in another byte order")
        if infos["data.pkl"].file_size > _LONGEST:
            raise _BadFileError("has a program that is too long")
        program = archive.read(infos["data.pkl"])

    def storage(parts: Any) -> _Storage:
        kind, key, count = parts[1], str(parts[2]), operator.index(parts[4])
        info = infos[f"data/{key}"]

        def read(length: int) -> bytes:
            try:
                with zipfile.ZipFile(path) as archive, archive.open(info) as file:
                    return _exactly(file.read(length), length)
            except _DAMAGES as error:
                raise ValueError(f"{path} is damaged: {error}") from error

        return _typed(kind, key, count, info.file_size, read)

    return _run(io.BytesIO(program), storage)


def _legacy(path: Path) -> Any:
    """Read a file of PyTorch before 1.6: pickle programs, followed by storages."""
    storages: dict[str, _Storage] = {}
    offsets: dict[str, tuple[int, int]] = {}

    def storage(parts: Any) -> _Storage:
        kind, key, count = parts[1], str(parts[2]), operator.index(parts[4])
        if len(parts) > 5 and parts[5] is not None:
            raise _BadFileError("has views of storages, as PyTorch wrote them before 0.4")

        def read(length: int) -> bytes:
            start, numbers = offsets.get(key, (0, -1))
            with open(path, "rb") as file:
                file.seek(start)
                content = file.read(length)
            if numbers != count or len(content) != length:
                raise ValueError(f"{path} is damaged, or truncated, at storage {key}")
            return content

        storages[key] = _typed(kind, key, count, os.stat(path).st_size, read)
        return storages[key]

    with open(path, "rb") as content:
        file = _Bounded(content)
        if file.read(1) != b"\x80":
            raise _BadFileError("is no file of torch.save and no safetensors file")
        content.seek(0)
        if _run(file, storage) != _LEGACY:
            raise _BadFileError("is no file of torch.save and no safetensors file")
        _run(file, storage)  # the version of the format
        if not _run(file, storage)["little_endian"]:
            raise _BadFileError("was written in another byte order")
        found = _run(file, storage)
        for key in _run(file, storage):
            (numbers,) = np.frombuffer(_exactly(file.read(8), 8), "<i8").tolist()
            kind = storages[key].dtype
            offsets[key] = content.tell(), numbers
            content.seek(numbers * (2 if kind == "bf16" else np.dtype(kind).itemsize), os.SEEK_CUR)
    return found


class _Bounded:
    """A file whose reads are limited to its size, as readers allocate all that is requested."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self.file = file

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, self.size))

    def readline(self) -> bytes:
        return self.file.readline(_LONGEST)

    def tell(self) -> int:
        return self.file.tell()


def _exactly(content: bytes, length: int) -> bytes:
    if len(content) != length:
        raise _BadFileError("is truncated")
    return content


def _typed(kind: Any, key: str, count: int, most: int, read: Any) -> _Storage:
    name = kind.name.rpartition(".")[2]
    if name not in _DTYPES:
        raise _BadFileError(f"has a storage of kind {kind.name}, which NumPy has not")
    dtype = _DTYPES[name]
    if not 0 <= count * (2 if dtype == "bf16" else np.dtype(dtype).itemsize) <= most:
        raise _BadFileError("has storages longer than itself")
    return _Storage(key, dtype, count, read)


# --- the interpreter --------------------------------------------------------------------


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Tensor:
    """Return a tensor after checking that it lies within its storage."""
    shape = tuple(map(operator.index, size))
    strides = tuple(map(operator.index, stride))
    if not isinstance(storage, _Storage) or len(shape) != len(strides):
        raise _BadFileError("has tensors that are made otherwise than PyTorch makes them")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    low = offset < 0 or any(n < 0 for n in (*shape, *strides))
    if low or (math.prod(shape) and last >= storage.count) or offset > storage.count:
        raise _BadFileError("has tensors that go beyond their storage")
    return _Tensor(storage, offset, shape, strides)


def _ordered(pairs: Any = ()) -> dict[Any, Any]:
    return dict(pairs)


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuild,
    "torch._utils._rebuild_tensor_v2": _rebuild,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch.Size": lambda sizes: tuple(sizes),
    "collections.OrderedDict": _ordered,
}


def _run(file: Any, storage: Callable[[Any], _Storage]) -> Any:
    """Interpret one pickle program, and return its object; leaves the file at its end."""
    return _Interpreter(storage).run(file)


class _Interpreter:
    """An interpreter of the pickle instructions for containers, numbers and tensors."""

    def __init__(self, storage: Callable[[Any], _Storage]) -> None:
        self.storage = storage
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: Any) -> Any:
        begin = file.tell()
        for opcode, argument, position in pickletools.genops(file):
            if position is not None and position - begin > _LONGEST:
                raise _BadFileError("has a program that is too long")
            self.step(opcode.name, argument)
        return self.stack[-1]

    def step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _GIVEN:
            self.stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "GLOBAL":
            self.stack.append(_Global(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            last, module = self.stack.pop(), self.stack.pop()
            self.stack.append(_Global(f"{module}.{last}"))
        elif name == "BINPERSID":
            parts = self.stack.pop()
            self.stack.append(self.storage(parts))
        elif name == "REDUCE":
            arguments, function = self.stack.pop(), self.stack.pop()
            self.stack.append(_call(function, arguments))
        elif name == "BUILD":  # an attribute, such as a state dict's versions of modules
            self.stack.pop()
        elif name not in ("PROTO", "FRAME", "STOP"):
            self.containers(name)

    def containers(self, name: str) -> None:
        """Run an instruction that fills containers."""
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name == "TUPLE":
            self.stack.append(tuple(self.since_mark()))
        elif name == "LIST":
            self.stack.append(self.since_mark())
        elif name == "APPEND":
            value = self.stack.pop()
            self.stack[-1].append(value)
        elif name == "APPENDS":
            values = self.since_mark()
            self.stack[-1].extend(values)
        elif name == "SETITEM":
            value, key = self.stack.pop(), self.stack.pop()
            self.stack[-1][key] = value
        elif name in ("SETITEMS", "DICT"):
            values = self.since_mark()
            if name == "DICT":
                self.stack.append({})
            self.stack[-1].update(zip(values[::2], values[1::2], strict=True))
        elif name in ("POP", "POP_MARK"):
            self.stack.pop() if name == "POP" else self.since_mark()
        else:
            raise _BadFileError(f"has {name} in its program, as no state dict has")

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values


def _call(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Global) or function.name not in _CALLS:
        name = function.name if isinstance(function, _Global) else type(function).__name__
        raise _BadFileError(f"calls {name}, which is no part of a state dict and is not run")
    return _CALLS[function.name](*arguments)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_GIVEN = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 BINFLOAT FLOAT STRING SHORT_BINSTRING BINSTRING "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8".split()
)
