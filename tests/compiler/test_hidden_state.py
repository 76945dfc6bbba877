"""A jitted function is never stale: programs that read state in unusual places.

Each row is the source of what a function reads, the function's result, and a change.  After the
change the jitted function gives what the function gives, or an `ImpureError` says what has changed.
"""

import contextlib
import os
import re
import sys
import types

import numpy as np
import pytest

import fdbr
from fdbr import ImpureError

pytestmark = pytest.mark.unchecked  # a comparison would find what guards are to find

X = np.array([1.0, -2.0, 3.0])
NEEDED = {"h5py": "h5py", "PIL": "PIL.Image"}

# What jit watches.
WATCHED = {
    "the dictionary of an object is replaced": (
        "class C: pass\nc = C(); c.rate = 2.0",
        "x * c.rate", "c.__dict__ = {'rate': 5.0}"),
    "the dictionary of an object is read": (
        "class C: pass\nc = C(); c.a = 2.0",
        "x * sum(vars(c).values())", "c.b = 5.0"),
    "the dictionary of an object is kept, and replaced": (
        "class C: pass\nc = C(); c.rate = 2.0",
        "x * vars(c)['ra' + 'te']", "c.__dict__ = {'rate': 5.0}"),
    "the dictionary of a function is replaced": (
        "def g(): pass\ng.rate = 2.0",
        "x * g.rate", "g.__dict__ = {'rate': 5.0}"),
    "the variables of a module are read": (
        "m = types.ModuleType('m'); m.a = 2.0",
        "x * sum(v for v in vars(m).values() if type(v) is float)", "m.b = 5.0"),
    "the attributes of a class are read": (
        "class C: a = 2.0",
        "x * sum(v for v in vars(C).values() if type(v) is float)", "C.b = 5.0"),
    "an attribute of a class by a computed name": (
        "class C: rate = 2.0\nname = 'ra'",
        "x * getattr(C, name + 'te')", "C.rate = 5.0"),
    "attributes are deleted and added so that their count stays": (
        "class C: rate = 2.0\nc = C(); c.a = 1; c.b = 1",
        "x * c.rate", "del c.a; c.rate = 5.0; del c.b; c.b = 1"),
    "attributes of a class are deleted and added": (
        "class B: rate = 2.0\nclass C(B): other = 1\nc = C()",
        "x * c.rate", "del C.other; C.rate = 5.0"),
    "a partial is given another function": (
        "p = functools.partial(lambda x, r: x * r, r=2.0)",
        "p(x)", "p.__setstate__((lambda x, r: x + r, (), {'r': 7.0}, None))"),
    "an attribute of a partial": (
        "p = functools.partial(float, 2.0); p.rate = 2.0",
        "x * p.rate", "p.rate = 5.0"),
    "an attribute of a function that is asked for": (
        "def g(): pass",
        "x * getattr(g, 'rate', 2.0)", "g.rate = 5.0"),
    "an attribute of a function whose lack is caught": (
        "def g(): pass\ndef h():\n try: return g.rate\n except AttributeError: return 2.0",
        "x * h()", "g.rate = 5.0"),
    "a variable of a module that is asked for": (
        "m = types.ModuleType('m')",
        "x * (5.0 if hasattr(m, 'rate') else 2.0)", "m.rate = 1"),
    "a variable of a module over its __getattr__": (
        "m = types.ModuleType('m'); m.__getattr__ = lambda name: 2.0",
        "x * m.rate", "m.rate = 5.0"),
    "the __getattr__ of a module is rebound": (
        "m = types.ModuleType('m'); m.__getattr__ = lambda name: 2.0",
        "x * m.rate", "m.__getattr__ = lambda name: 5.0"),
    "a name that cannot be imported yet": (
        "m = sys.modules['m_of_tests'] = types.ModuleType('m_of_tests')\ndef h():\n"
        " try: from m_of_tests import rate\n except ImportError: return 2.0\n return rate",
        "x * h()", "m.rate = 5.0"),
    "a method over that of the class": (
        "class C:\n def r(self): return 2.0\nc = C()",
        "x * c.r()", "c.r = lambda: 5.0"),
    "a method bound to another object": (
        "class C:\n def r(self): return self.v\na, b = C(), C(); a.v, b.v = 2.0, 5.0; g = a.r",
        "x * g()", "g = b.r"),
    "a property is replaced": (
        "class C: rate = property(lambda self: 2.0)\nc = C()",
        "x * c.rate", "C.rate = property(lambda self: 5.0)"),
    "a static method is replaced": (
        "class C:\n @staticmethod\n def r(): return 2.0",
        "x * C.r()", "C.r = staticmethod(lambda: 5.0)"),
    "a list that a class fills with its subclasses": (
        "kinds = []\nclass C:\n def __init_subclass__(cls): kinds.append(cls)\nclass D(C): pass",
        "x * len(kinds)", "type('E', (C,), {})"),
    "a list in a cached property": (
        "class C:\n @functools.cached_property\n def r(self): return [2.0]\nc = C()",
        "x * c.r[0]", "c.r[0] = 5.0"),
    "a list that lru_cache keeps": (
        "@functools.lru_cache\ndef g(n): return [2.0] * n",
        "x * g(1)[0]", "g(1)[0] = 5.0"),
    "a dict that cache keeps": (
        "@functools.cache\ndef g(n): return {'rate': 2.0}",
        "x * g(1)['rate']", "g(1)['rate'] = 5.0"),
    "a list in a tuple that lru_cache keeps": (
        "@functools.lru_cache(maxsize=2)\ndef g(n): return ([2.0], n)",
        "x * g(1)[0][0]", "g(1)[0][0] = 5.0"),
    "an array that lru_cache keeps": (
        "@functools.lru_cache\ndef g(n): return np.full(n, 2.0)",
        "x * g(3)", "g(3)[0] = 5.0"),
    "a branch on an array that lru_cache keeps": (
        "@functools.lru_cache\ndef g(n): return np.full(n, 2.0)",
        "x * 2 if g(3)[0] > 3 else x", "g(3)[0] = 5.0"),
    "an object that lru_cache keeps": (
        "class C: rate = 2.0\n@functools.lru_cache\ndef g(n): return C()",
        "x * g(1).rate", "g(1).rate = 5.0"),
    "a list that a memoised method keeps": (
        "class C:\n @functools.lru_cache\n def g(self): return [2.0]\nc = C()",
        "x * c.g()[0]", "c.g()[0] = 5.0"),
    "the precision of decimal numbers": (
        "import decimal\na = decimal.Decimal(1)",
        "x * float(a / 3)", "decimal.getcontext().prec = 2"),
    "a dataclass with slots": (
        "@dataclasses.dataclass(slots=True)\nclass C: rate: float = 2.0\nc = C()",
        "x * c.rate", "c.rate = 5.0"),
    "a frozen dataclass with a list": (
        "@dataclasses.dataclass(frozen=True)\nclass C: rates: list\nc = C([2.0])",
        "x * c.rates[0]", "c.rates[0] = 5.0"),
    "a frozen object with a static field": (
        "class A: rate = 2.0\n@fdbr.frozen\nclass C: a: A = fdbr.static()\nc = C(A())",
        "x * c.a.rate", "c.a.rate = 5.0"),
    "an attribute of a list": (
        "class L(list): rate = 2.0\nc = L()",
        "x * c.rate", "c.rate = 5.0"),
    "an attribute of a number": (
        "class F(float): pass\nc = F(2.0); c.rate = 2.0",
        "x * c.rate", "c.rate = 5.0"),
    "an attribute of a counter": (
        "c = collections.Counter(); c.rate = 2.0",
        "x * c.rate", "c.rate = 5.0"),
    "a namespace of argparse": (
        "import argparse\nc = argparse.Namespace(rate=2.0)",
        "x * c.rate", "c.rate = 5.0"),
    "an object of a library, by its method": (
        "class C(collections.UserDict): pass\nc = C(rate=2.0)",
        "x * c.get('rate')", "c['rate'] = 5.0"),
    "a deque in a default": (
        "def g(d=collections.deque([2.0])): return d[0]",
        "x * g()", "g.__defaults__[0].appendleft(5.0)"),
    "the order of a dict": (
        "d = {'a': 2.0, 'b': 5.0}",
        "x * next(iter(d.values()))", "d['a'] = d.pop('a')"),
    "equal keys of another type": (
        "d = {1: 2.0}",
        "x * (5.0 if type(next(iter(d))) is bool else 2.0)", "d.clear(); d[True] = 2.0"),
    "a jitted partial inside": (
        "r = {'rate': 2.0}\ng = fdbr.jit(functools.partial(lambda r, x: x * r['rate'], r))",
        "g(x)", "r['rate'] = 5.0"),
    "a jitted callable object inside": (
        "class C:\n def __call__(self, x): return x * self.rate\nc = C(); c.rate = 2.0\n"
        "g = fdbr.jit(c)",
        "g(x)", "c.rate = 5.0"),
    "objects that attrs compares": (
        "import attrs\n@attrs.define\nclass C: rate: float = 2.0\na, b = C(), C()",
        "x * (2 if a == b else 5)", "a.rate = 3.0"),
    "objects that dataclasses writes": (
        "@dataclasses.dataclass\nclass C: rate: float = 2.0\na = C()",
        "x * len(str(a))", "a.rate = 3.125"),
    "the members of an enumeration": (
        "import enum\nclass M(enum.Enum): A = 1\nM.A.rate = 2.0",
        "x * sum(m.rate for m in M)", "M.A.rate = 5.0"),
    "a list that a method makes once": (
        "class C:\n def g(self):\n  if not hasattr(self, 'm'): self.m = [2.0]\n  return self.m\n"
        "c = C()",
        "x * c.g()[0]", "c.m[0] = 5.0"),
    "a list that a class makes once": (
        "class C:\n made = None\n def __new__(cls):\n"
        "  if cls.made is None: cls.made = object.__new__(cls); cls.made.r = [2.0]\n"
        "  return cls.made",
        "x * C().r[0]", "C.made.r[0] = 5.0"),
    "an attribute of a class of a library": (
        "import argparse\nclass N(argparse.Namespace): pass\nargparse.Namespace.of_a_test = 2.0\n"
        "c = N()",
        "x * c.of_a_test",
        "argparse.Namespace.of_a_test = 5.0\n"
        "undo.append(lambda: delattr(argparse.Namespace, 'of_a_test'))"),
    "an element of an array without axes": (
        "w = np.array(2.0)",
        "x * w", "w[()] = 5.0"),
    "a column of a structured array": (
        "w = np.zeros(2, [('rate', float)])",
        "x * w['rate'][0]", "w['rate'] = 5.0"),
    "the arguments of a program": ("", "x * len(sys.argv)", "sys.argv.append('--more')"),
}  # fmt: skip

# What makes a function run as it is, with the type that the report names.
REFUSED = {
    "a module gets another class": (
        "m = types.ModuleType('m'); m.rate = 2.0\n"
        "class M(types.ModuleType): rate = property(lambda self: 5.0)",
        "x * m.rate", "del m.rate; m.__class__ = M", ""),
    "a module of another class": (
        "class M(types.ModuleType): rate = property(lambda self: self.own)\n"
        "m = M('m'); m.own = 2.0",
        "x * m.rate", "m.own = 5.0", "m, of type M"),
    "a record": (
        "w = np.rec.array([(2.0,)], dtype=[('rate', float)])[0]",
        "x * w.rate", "w.rate = 5.0", "w, of type record"),
    "an element of a structured array": (
        "w = np.zeros(1, [('rate', float)])[0]",
        "x * w['rate']", "w['rate'] = 5.0", "w, of type void"),
    "an array of records": (
        "w = np.rec.array([(2.0,)], dtype=[('rate', float)])",
        "x * w.rate[0]", "w.rate[0] = 5.0", "w, of type recarray"),
    "an array of objects": (
        "w = np.array([[2.0]], dtype=object)",
        "x * float(w[0, 0])", "w[0, 0] = 5.0", "w, of type ndarray"),
    "a shelf": (
        "import shelve\ns = shelve.open(path + 'shelf'); s['rate'] = 2.0",
        "x * s['rate']", "s['rate'] = 5.0", "s, of type DbfilenameShelf"),
    "a simple database": (
        "import dbm.dumb\ns = dbm.dumb.open(path + 'dumb', 'c'); s['rate'] = b'2'",
        "x * float(s['rate'])", "s['rate'] = b'5'", "s, of type _Database"),
    "a mapped file that is read only": (
        "np.save(path + 'a.npy', np.ones(3)); w = np.load(path + 'a.npy', mmap_mode='r')\n"
        "o = np.load(path + 'a.npy', mmap_mode='r+')",
        "x * w", "o[:] = 5.0", "w, of type memmap"),
    "a part of a mapped file": (
        "np.ones(3).tofile(path + 'b'); w = np.asarray(np.memmap(path + 'b', float, 'r'))[1:]\n"
        "o = np.memmap(path + 'b', float, 'r+')",
        "x * w[0]", "o[:] = 5.0", "w, of type ndarray"),
    "a mapped file that is opened inside": (
        "np.ones(3).tofile(path + 'c')",
        "x * np.array(np.memmap(path + 'c', float, 'r'))",
        "np.full(3, 5.0).tofile(path + 'c')", "memmap"),
    "a mapping": (
        "import mmap\nw = mmap.mmap(-1, 8); w[0] = 2",
        "x * w[0]", "w[0] = 5", "w, of type mmap"),
    "shared memory": (
        "from multiprocessing import shared_memory\n"
        "w = shared_memory.SharedMemory(None, True, 24)\n"
        "w.unlink(); w.buf[0] = 2",
        "x * w.buf[0]", "w.buf[0] = 5", "SharedMemory"),
    "an array in shared memory": (
        "from multiprocessing import shared_memory\n"
        "s = shared_memory.SharedMemory(None, True, 24)\n"
        "s.unlink(); w = np.ndarray(3, float, s.buf); w[:] = 2.0",
        "x * w", "w[:] = 5.0", "w, of type ndarray"),
    "a value of several processes": (
        "import multiprocessing\nw = multiprocessing.RawValue('d', 2.0)",
        "x * w.value", "w.value = 5.0", "w, of type c_double"),
    "an array over a C array": (
        "import ctypes\nw = np.ctypeslib.as_array((ctypes.c_double * 3)(2.0, 2.0, 2.0))",
        "x * w", "w[:] = 5.0", "w, of type ndarray"),
    "an image": (
        "from PIL import Image\nw = Image.new('L', (1, 1), 2)",
        "x * w.getpixel((0, 0))", "w.putpixel((0, 0), 5)", "w.*im.*, of type ImagingCore"),
    "a data set": (
        "import h5py\nh = h5py.File(path + 'a.h5', 'w'); w = h.create_dataset('w', data=[2.0])",
        "x * w[0]", "w[0] = 5.0", "w"),
    "an attribute of a file": (
        "import h5py\nh = h5py.File(path + 'b.h5', 'w'); h.attrs['rate'] = 2.0",
        "x * h.attrs['rate']", "h.attrs['rate'] = 5.0", "h"),
    "a data base": (
        "import sqlite3\nw = sqlite3.connect(':memory:'); w.execute('create table t as select 2')",
        "x * w.execute('select * from t').fetchone()[0]", "w.execute('update t set \"2\" = 5')",
        "w, of type Connection"),
    "a weak reference": (
        "class C: pass\no = C(); r = weakref.ref(o)",
        "x * (2 if r() is None else 5)", "del o", "r, of type ReferenceType"),
    "a weak dictionary": (
        "class C: pass\no = C(); r = weakref.WeakValueDictionary(a=o)",
        "x * len(r)", "del o", "weak|Weak"),
    "a weak set": (
        "class C: pass\no = C(); r = weakref.WeakSet([o])",
        "x * len(r)", "del o", "of _weakrefset"),
    "a proxy": (
        "class C: pass\no = C(); o.rate = 2.0; r = weakref.proxy(o)",
        "x * r.rate", "o.rate = 5.0", "r, of type (weakproxy|ProxyType)"),
    "a context variable": (
        "v = contextvars.ContextVar('v', default=2.0)",
        "x * v.get()", "v.set(5.0)", "v, of type ContextVar"),
    "a context": (
        "v = contextvars.ContextVar('v'); v.set(2.0); c = contextvars.copy_context()",
        "x * c[v]", "c.run(v.set, 5.0)", "type Context"),
    "a thread local": (
        "o = threading.local(); o.rate = 2.0",
        "x * o.rate", "o.rate = 5.0", "o, of type _?local"),
    "the environment": (
        "os.environ['FDBR_A_TEST'] = '2'",
        "x * float(os.environ['FDBR_A_TEST'])", "os.environ['FDBR_A_TEST'] = '5'",
        "os.environ, of type _Environ"),
    "a registry": (
        "@functools.singledispatch\ndef g(n): return 2.0",
        "x * g(1)", "g.register(int, lambda n: 5.0)", "type WeakKeyDictionary"),
    "a metaclass": (
        "class M(type): rate = property(lambda cls: cls.own)\nclass C(metaclass=M): own = 2.0",
        "x * C.rate", "C.own = 5.0", "metaclass"),
    "an object of a class with a metaclass": (
        "class M(type): pass\nclass C(metaclass=M): rate = 2.0\nc = C()",
        "x * c.rate", "C.rate = 5.0", "metaclass"),
    "a descriptor with a state": (
        "class D:\n def __init__(self): self.r = {}\n"
        " def __get__(self, o, cls): return self.r.get(id(o), 2.0)\n"
        "class C: d = D()\nc = C()",
        "x * c.d", "vars(C)['d'].r[id(c)] = 5.0", "C.d, of type D"),
    "a file that is open": (
        "f = open(path + 'd', 'w+')",
        "x * (1 + f.tell())", "f.write('abc'); f.flush()", "f, of type TextIOWrapper"),
    "a file that is written": (
        "f = open(path + 'e', 'w')",
        "x * (1 + f.tell())", "f.write('abc')", "f, of type TextIOWrapper"),
    "a text in memory": (
        "import io\nf = io.StringIO('a')",
        "x * len(f.getvalue())", "f.seek(9); f.write('b')", "f, of type StringIO"),
    "a table in a file": (
        "import csv, io\nf = csv.reader(io.StringIO('2\\n5'))",
        "x * f.line_num", "next(f)", "f, of type reader"),
    "a generator": (
        "def g():\n yield 1\n yield 2\ng = g()",
        "x * (2 if g.gi_suspended else 5) if hasattr(g, 'gi_suspended') else x",
        "next(g)", "g, of type generator"),
    "bytes that change": (
        "b = bytearray([2])",
        "x * b[0]", "b[0] = 5", "b, of type bytearray"),
    "an array of Python": (
        "import array\nb = array.array('d', [2.0])",
        "x * b[0]", "b[0] = 5.0", "b, of type array"),
    "a memory view": (
        "b = memoryview(bytearray([2]))",
        "x * b[0]", "b[0] = 5", "b, of type memoryview"),
    "a proxy of a dict": (
        "d = {'rate': 2.0}; p = types.MappingProxyType(d)",
        "x * p['rate']", "d['rate'] = 5.0", "p, of type mappingproxy"),
    "a view of a dict": (
        "d = {'a': 2.0}; p = d.values()",
        "x * sum(p)", "d['b'] = 5.0", "p, of type dict_values"),
    "a structure of C": (
        "import ctypes\nclass S(ctypes.Structure): _fields_ = [('rate', ctypes.c_double)]\n"
        "s = S(2.0)",
        "x * s.rate", "s.rate = 5.0", "s, of type S"),
    "an exception": (
        "e = ValueError(2.0)",
        "x * e.args[0]", "e.args = (5.0,)", "e, of type ValueError"),
    "an element of XML": (
        "import xml.etree.ElementTree as t\ne = t.Element('a', rate='2')",
        "x * float(e.get('rate'))", "e.set('rate', '5')", "e, of type Element"),
    "a queue": (
        "import queue\nq = queue.Queue()",
        "x * (1 + q.qsize())", "q.put(1)", "q, of type Queue"),
    "a lock": (
        "q = threading.Lock()",
        "x * (5.0 if q.locked() else 2.0)", "q.acquire()", "q, of type lock"),
    "the level of a logger": (
        "import logging\nlog = logging.getLogger('of_another_test')",
        "x * (5.0 if log.isEnabledFor(10) else 2.0)", "log.setLevel(10)", "isEnabledFor"),
    "whether a file exists": (
        "import pathlib\np = pathlib.Path(path + 'f')",
        "x * (5.0 if p.exists() else 2.0)", "p.touch()", "exists"),
    "the folder that a program is in": (
        "here = os.getcwd()",
        "x * len(os.getcwd())", "os.chdir('/'); undo.append(lambda: os.chdir(here))", "getcwd"),
    "a setting of Python": (
        "old = sys.getrecursionlimit()",
        "x * sys.getrecursionlimit()",
        "sys.setrecursionlimit(old + 1); undo.append(lambda: sys.setrecursionlimit(old))",
        "getrecursionlimit"),
    "annotations": (
        "import typing\nclass C: a: int",
        "x * len(typing.get_type_hints(C))", "C.__annotations__['b'] = int", "get_type_hints"),
    "the level of a logger that a function finds": (
        "import logging",
        "x * (1 + logging.getLogger('of_a_test').getEffectiveLevel())",
        "logging.getLogger('of_a_test').setLevel(10)", "getEffectiveLevel"),
    "a masked array": (
        "w = np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 0])",
        "x * w.filled(7.0)", "w[0] = np.ma.masked", "w, of type MaskedArray"),
}  # fmt: skip


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a function and its change of source; what is open is closed afterwards."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    space, undo = vars(types.ModuleType("a_program")), []

    def made(source, result, change):
        for name, package in NEEDED.items():
            if name in source:
                pytest.importorskip(package)
        space.update(undo=undo, path=f"{tmp_path}{os.sep}")
        exec(
            "import collections, contextvars, dataclasses, functools, os, sys, threading, types\n"
            f"import weakref\nimport numpy as np\nimport fdbr\n{source}\n"
            f"def function(x): return {result}",
            space,
        )
        return space["function"], lambda: exec(change, space)

    yield made
    while undo:
        undo.pop()()
    for value in list(space.values()):
        with contextlib.suppress(Exception):  # it has no `close`, or is in use
            type(value).close(value)


@pytest.mark.parametrize("name", [*WATCHED, *REFUSED])
def test_a_change_of_what_a_function_reads_is_never_missed(name, make):
    f, change = make(*(WATCHED | REFUSED)[name][:3])
    pairs = [(fdbr.jit(f), f), (fdbr.jit(f), f)]
    pairs.append((fdbr.jit(fdbr.vmap(f)), fdbr.vmap(f)))
    before = np.array(f(X))
    for _ in range(3):
        for jitted, plain in pairs:
            assert np.array_equal(jitted(X), plain(X))
    change()
    assert name == "a file that is open" or not np.array_equal(f(X), before)
    for _ in range(3):
        for jitted, plain in pairs:
            with contextlib.suppress(ImpureError):  # a captured array has changed
                assert np.array_equal(jitted(X), plain(X))


@pytest.mark.parametrize("name", WATCHED)
def test_what_is_watched_is_traced(name, make):
    f, _ = make(*WATCHED[name])
    jitted = fdbr.jit(f)
    for _ in range(3):
        jitted(X)
    assert jitted.report().traces[0].runs >= 1


@pytest.mark.parametrize("name", [name for name, row in REFUSED.items() if row[3]])
def test_what_is_refused_is_named(name, make):
    *program, reason = REFUSED[name]
    f, _ = make(*program)
    jitted = fdbr.jit(f)
    for _ in range(2):
        jitted(X)
    assert not jitted.report().traces
    assert re.search(reason, str(jitted.report())), jitted.report()
