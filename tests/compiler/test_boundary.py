"""The table in docs/jit.md says what jit watches: each of its rows is tested by hostile members.

A member is the source of a user's module: what is there, the function of ``x``, and a change.  A
function of a watched row is traced and gives the values after the change; one of another row runs
at every call, or is an error; what is taken as constant stays what it was.
"""

import pathlib
import re
import types

import numpy as np
import pytest

import fdbr
from fdbr import ImpureError

pytestmark = pytest.mark.unchecked  # a comparison would find what guards are to find

X = np.array([1.0, -2.0, 3.0])
OBJECT = "class Plain:\n def __init__(self, **own): vars(self).update(own)\n"

WATCHED = {
    "variables": {
        "a global": ("r = 2.0", "x * r", "r = 5.0"),
        "a global deleted": ("r = 5.0\nimport builtins\nbuiltins.r = 2.0", "x * r", "del r"),
        "a builtin shadowed": ("", "x * len([1, 2])", "len = lambda _: 5.0"),
        "a cell": ("import types; c = types.CellType(2.0)", "x * c.cell_contents",
                   "c.cell_contents = 5.0"),
        "a cell of a closure": ("def make():\n r = 2.0\n def set(v):\n  nonlocal r; r = v\n"
                                " return (lambda: r), set\nget, set = make()",
                                "x * get()", "set(5.0)"),
        "a comprehension": ("l = [2.0]", "x * sum(v for v in (w for w in l))", "l = [5.0]"),
        "a walrus": ("r = 2.0", "x * [y := r][0]", "r = 5.0"),
        "a class body": ("r = 2.0\ndef g():\n class K: a = r\n return K.a", "x * g()", "r = 5.0"),
    },
    "functions": {
        "code": ("def g(): return 2.0", "x * g()", "g.__code__ = (lambda: 5.0).__code__"),
        "defaults": ("def g(a=2.0): return a", "x * g()", "g.__defaults__ = (5.0,)"),
        "defaults that are read": ("def g(a=2.0): return a", "x * g.__defaults__[0]",
                                   "g.__defaults__ = (5.0,)"),
        "an attribute": ("def g(): pass\ng.r = 2.0", "x * g.__dict__['r']", "g.r = 5.0"),
        "a docstring": ("def g(): 'aa'", "x * len(g.__doc__)", "g.__doc__ = 'aaaaa'"),
        "a name": ("def g(): pass", "x * len(g.__name__)", "g.__name__ = 'aaaaa'"),
        "a partial": ("import functools; p = functools.partial(lambda a: a, a=2.0)", "x * p()",
                      "p.keywords.update(a=5.0)"),
        "a method": ("class K:\n r = 2.0\n def m(self): return self.r\nm = K().m", "x * m()",
                     "m.__self__.r = 5.0"),
        "a wrapper": ("import functools\ndef g(): return w.r\n@functools.wraps(g)\n"
                      "def w(): return g()\nw.r = 2.0", "x * w()", "w.r = 5.0"),
        "a static method": ("s = staticmethod(lambda: r); r = 2.0", "x * s()", "r = 5.0"),
        "a partial method": ("import functools\nclass K:\n def g(self, a): return a\n"
                             " h = functools.partialmethod(g, a=2.0)\nk = K()", "x * k.h()",
                             "vars(K)['h'].keywords.update(a=5.0)"),
        "super": ("class B:\n def r(self): return 2.0\nclass K(B):\n"
                  " def r(self): return super().r()\nk = K()", "x * k.r()",
                  "B.r = lambda self: 5.0"),
        "getattr": ("class K:\n def __getattr__(self, name): return r\nr = 2.0; k = K()",
                    "x * k.anything", "r = 5.0"),
        "a property": ("class K:\n @property\n def p(self): return r\nr = 2.0; k = K()", "x * k.p",
                       "r = 5.0"),
        "a descriptor": ("class D:\n def __get__(self, *_): return r\nclass K: d = D()\n"
                         "r = 2.0; k = K()", "x * k.d", "r = 5.0"),
        "a memoised function": ("import functools; r = 2.0\n@functools.cache\ndef g(): return r",
                                "x * g()", "r = 5.0; g.cache_clear()"),
        "a memoised method": ("import functools\nclass K:\n r = 2.0\n @functools.lru_cache\n"
                              " def g(self): return self.r\nk = K()", "x * k.g()",
                              "k.r = 5.0; K.g.cache_clear()"),
        "a coroutine function": ("async def g(): return r\nr = 2.0\ndef run():\n c = g()\n"
                                 " try: c.send(None)\n except StopIteration as e: return e.value",
                                 "x * run()", "r = 5.0"),
        "a formatting method": ("class K:\n def __format__(self, _): return str(r)\n"
                                "k = K(); r = 2.0", "x * float(f'{k}')", "r = 5.0"),
    },
    "instances and classes": {
        "an attribute": (OBJECT + "o = Plain(r=2.0)", "x * o.r", "o.r = 5.0"),
        "a slot": ("class K: __slots__ = ('r',)\nk = K(); k.r = 2.0", "x * k.r", "k.r = 5.0"),
        "an attribute of a class": ("class K: r = 2.0\nd = {'k': [K]}", "x * d['k'][0].r",
                                    "K.r = 5.0"),
        "an attribute by a computed name": (OBJECT + "o = Plain(rate=2.0); n = 'ra'",
                                            "x * getattr(o, n + 'te')", "o.rate = 5.0"),
        "object.__getattribute__": (OBJECT + "o = Plain(rate=2.0); n = 'ra'",
                                    "x * object.__getattribute__(o, n + 'te')", "o.rate = 5.0"),
        "attrgetter": (OBJECT + "from operator import attrgetter; o = [Plain(rate=2.0)]",
                       "x * sum(map(attrgetter('rate'), o))", "o[0].rate = 5.0"),
        "methodcaller": ("import operator\nclass K:\n r = 2.0\n def m(self): return self.r\n"
                         "k = K(); g = operator.methodcaller('m')", "x * g(k)", "k.r = 5.0"),
        "a copy": (OBJECT + "import copy; o = Plain(r=2.0)", "x * copy.copy(o).r", "o.r = 5.0"),
        "a dataclass": ("import dataclasses\n@dataclasses.dataclass(slots=True)\nclass K:\n"
                        " a: float\nk = K(2.0)", "x * k.a", "k.a = 5.0"),
        "equal dataclasses": ("import dataclasses\n@dataclasses.dataclass\nclass K:\n a: int = 2\n"
                              "k, l = K(), K()", "x * (2.0 if k == l else 5.0)", "k.a = 5"),
        "an attrs class": ("import attrs\n@attrs.define\nclass K: a: float = 2.0\nk, l = K(), K()",
                           "x * (2.0 if k == l else 5.0)", "k.a = 5.0"),
        "a frozen attrs class": ("import attrs\n@attrs.frozen\nclass K:\n a: float\nk = K(2.0)",
                                 "x * k.a", "object.__setattr__(k, 'a', 5.0)"),
        "a namespace": ("import types; n = types.SimpleNamespace(r=2.0)", "x * n.r", "n.r = 5.0"),
        "a namespace as text": ("from types import SimpleNamespace as N; n = N(r=2.0)",
                                "x * len(repr(n))", "n.longer = 5.0"),
        "equal namespaces": ("from types import SimpleNamespace as N; k, l = N(a=2), N(a=2)",
                             "x * (2.0 if k == l else 5.0)", "k.a = 5"),
        "parsed arguments": ("import argparse; n = argparse.Namespace(r=2.0)", "x * n.r",
                             "n.r = 5.0"),
        "a member of an enumeration": ("import enum\nclass E(enum.Enum): A = 2.0",
                                       "x * E.A.value", "E.A._value_ = 5.0"),
        "an attribute of an integer": ("import enum\nclass E(enum.IntEnum): A = 1\nE.A.r = 2.0",
                                       "x * E.A.r", "E.A.r = 5.0"),
        "an attribute of a float": ("class F(float): pass\nv = F(2.0); v.r = 2.0", "x * v.r",
                                    "v.r = 5.0"),
        "an attribute of a tuple": ("class T(tuple): pass\nv = T((1,)); v.r = 2.0", "x * v.r",
                                    "v.r = 5.0"),
        "another class": ("class A: r = 2.0\nclass B: r = 5.0\na = A()", "x * a.r",
                          "a.__class__ = B"),
        "other bases": ("class A: r = 2.0\nclass B: r = 5.0\nclass K(A): pass", "x * K.r",
                        "K.__bases__ = (B,)"),
        "a registration": ("import abc\nclass A(abc.ABC): pass\nclass K: pass\nk = K()",
                           "x * (2.0 if isinstance(k, A) else 5.0)", "A.register(K)"),
        "truth": ("class K:\n def __bool__(self): return True\nk = K()", "x * (2.0 if k else 5.0)",
                  "K.__bool__ = lambda self: False"),
        "a polynomial of NumPy": ("import numpy as np; p = np.polynomial.Polynomial([2.0, 0.0])",
                                  "x * float(p(1.0))", "p.coef = np.array([5.0, 0.0])"),
        "a distribution of SciPy": ("import scipy.stats as s; d = s.norm(loc=2.0)",
                                    "x * float(d.mean())", "d.kwds.update(loc=5.0)"),
    },
    "containers": {
        "a dict": ("d = {'r': 2.0}", "x * d['r']", "d['r'] = 5.0"),
        "a dict by a method": ("d = {'r': 2.0}; g = d.__getitem__", "x * g('r')", "d['r'] = 5.0"),
        "a list by a method": ("l = [2.0]; g = l.__len__", "x * g()", "l.append(1)"),
        "a list by itemgetter": ("from operator import itemgetter; l = [2.0]; g = itemgetter(0)",
                                 "x * g(l)", "l[0] = 5.0"),
        "an OrderedDict": ("from collections import OrderedDict; d = OrderedDict(a=2.0, b=5.0)",
                           "x * next(iter(d.values()))", "d.move_to_end('a')"),
        "a defaultdict": ("import collections; d = collections.defaultdict(int)",
                          "x * d.get('r', 2.0)", "d['r'] = 5.0"),
        "a missing key": ("class D(dict):\n r = 2.0\n def __missing__(self, _): return self.r\n"
                          "d = D()", "x * d['a']", "D.r = 5.0"),
        "a set": ("s = {1}", "x * (2.0 if 1 in s else 5.0)", "s.clear()"),
        "a deque": ("import collections; d = collections.deque([2.0, 5.0])", "x * d[0]",
                    "d.rotate()"),
        "a ChainMap": ("import collections; d = {'r': 2.0}; c = collections.ChainMap({}, d)",
                       "x * c['r']", "d['r'] = 5.0"),
        "a mapping of one's own": ("import collections\nclass M(collections.UserDict): pass\n"
                                   "m = M(r=2.0)", "x * m.get('r')", "m['r'] = 5.0"),
        "an attribute of a list": ("class L(list): pass\nl = L([1]); l.r = 2.0", "x * l.r",
                                   "l.r = 5.0"),
        "an object deep inside": (OBJECT + "l = [{'k': (Plain(r=2.0),)}]", "x * l[0]['k'][0].r",
                                  "l[0]['k'][0].r = 5.0"),
        "pickled items": ("import pickle; d = {'r': 2.0}", "x * pickle.loads(pickle.dumps(d))['r']",
                          "d['r'] = 5.0"),
        "items as JSON": ("import json; d = {'r': 2.0}", "x * json.loads(json.dumps(d))['r']",
                          "d['r'] = 5.0"),
    },
    "modules": {
        "a variable": ("import sys, types; m = sys.modules['of_a_user'] = types.ModuleType('u')\n"
                       "m.rate = 2.0\ndef g():\n import of_a_user\n return of_a_user.rate",
                       "x * g()", "m.rate = 5.0"),
        "a name": ("import sys, types; m = sys.modules['of_a_user'] = types.ModuleType('u')\n"
                   "m.rate = 2.0\ndef g():\n from of_a_user import rate\n return rate",
                   "x * g()", "m.rate = 5.0"),
        "a variable by vars": ("import types; m = types.ModuleType('u'); m.rate = 2.0",
                               "x * vars(m)['rate']", "m.rate = 5.0"),
        "a variable by a computed name": ("import types; m = types.ModuleType('u'); m.rate = 2.0\n"
                                          "n = 'ra'", "x * getattr(m, n + 'te')", "m.rate = 5.0"),
        "a function of a library": ("import math; old = math.floor", "x * math.floor(2.5)",
                                    "math.floor = lambda _: 5.0", "math.floor = old"),
        "a function of NumPy": ("import numpy as np; old = np.tanh", "np.tanh(x)",
                                "np.tanh = lambda x: x * 5.0", "np.tanh = old"),
        "a builtin": ("import builtins; builtins.of_no_one = lambda: 2.0", "x * of_no_one()",
                      "builtins.of_no_one = lambda: 5.0"),
    },
    "arrays": {
        "an element": ("import numpy as np; a = np.ones(3)", "x * a", "a[0] = 5.0"),
        "in an object": (OBJECT + "import numpy as np; o = Plain(l=[{'a': np.ones(3)}])",
                         "x * o.l[0]['a']", "o.l[0]['a'][0] = 5.0"),
        "through a view": ("import numpy as np; a = np.ones(6); v = a[::2]", "x * v", "a[0] = 5.0"),
        "a number of it": ("import numpy as np; a = np.ones(3)", "x * a.tolist()[0]", "a[0] = 5.0"),
        "a sparse matrix": ("import scipy.sparse as sp; a = sp.eye(3).tocsr()",
                            "x * float(a[0, 0])", "a.data[0] = 5.0"),
    },
}  # fmt: skip

EAGER = {
    "what the function itself changes": {
        "a variable": ("n = 0\ndef g():\n global n; n += 1\n return n", "x * g()", ""),
        "an attribute of a class": ("class K: n = 0\ndef g():\n K.n += 1\n return K.n",
                                    "x * g()", ""),
        "an attribute by setattr": (OBJECT + "o = Plain(n=0)\n"
                                    "def g():\n setattr(o, 'n', o.n + 1)\n return o.n",
                                    "x * g()", ""),
        "an attribute in a property": ("class K:\n n = 0\n @property\n def p(self):\n"
                                       "  self.n += 1\n  return self.n\nk = K()", "x * k.p", ""),
        "an item": ("n = [0]\ndef g():\n n[0] += 1\n return n[0]", "x * g()", ""),
        "a length": ("n = []\ndef g():\n n.append(1)\n return len(n)", "x * g()", ""),
        "a counter": ("import collections; c = collections.Counter()\n"
                      "def g():\n c['a'] += 1\n return c['a']", "x * g()", ""),
        "a deque": ("import collections; d = collections.deque([2.0, 5.0, 7.0])\n"
                    "def g():\n d.rotate()\n return d[0]", "x * g()", ""),
        "an array": ("import numpy as np; a = np.zeros(1)\ndef g():\n a[0] += 1\n return a[0]",
                     "x * g()", ""),
    },
    "random numbers": {
        "of NumPy": ("import numpy as np", "x * np.random.normal()", ""),
        "of Python": ("import random", "x * random.random()", ""),
        "of a generator": (OBJECT + "import numpy as np; o = Plain(r=np.random.default_rng(0))",
                           "x * o.r.normal()", ""),
        "of a generator without a seed": ("import numpy as np",
                                          "x * np.random.default_rng().normal()", ""),
        "of a generator of Python": ("import random", "x * random.Random().random()", ""),
        "of the system": ("import random; r = random.SystemRandom()", "x * r.random()", ""),
        "of secrets": ("import secrets", "x * secrets.randbelow(10**9)", ""),
        "the state of a generator": ("import numpy as np; g = np.random.default_rng(0)",
                                     "x * (g.bit_generator.state['state']['state'] % 7)",
                                     "g.normal()"),
        "the state of NumPy": ("import numpy as np", "x * np.random.get_state()[2]",
                               "np.random.rand()"),
    },
    "what is used up": {
        "an iterator": ("it = iter(range(99))", "x * next(it)", ""),
        "a generator": ("it = (i for i in range(99))", "x * next(it)", ""),
        "a cycle in an object": (OBJECT + "import itertools; o = Plain(i=itertools.cycle([2, 5]))",
                                 "x * next(o.i)", ""),
        "a bound method": ("import itertools; n = itertools.count().__next__", "x * n()", ""),
        "a partial": ("import functools, itertools; n = functools.partial(next, itertools.count())",
                      "x * n()", ""),
        "an iterator in a list": ("l = [iter(range(99))]", "x * next(l[0])", ""),
        "the iterator of an array": ("import numpy as np; a = np.ones(3); i = a.flat", "x * i[0]",
                                     "a[0] = 5.0"),
        "an open file": ("import io; b = io.BytesIO(bytes([2] * 99))", "x * b.read(1)[0]", ""),
    },
    "the outside world": {
        "a clock": ("import time", "x * time.perf_counter()", ""),
        "a clock as a default": ("import time\ndef g(c=time.perf_counter): return c()",
                                 "x * g()", ""),
        "a clock in a dict": ("import time; d = {'c': time.perf_counter}", "x * d['c']()", ""),
        "a clock by a computed name": ("import time; n = 'perf_'",
                                       "x * getattr(time, n + 'counter')()", ""),
        "a clock imported inside": ("def g():\n from time import process_time as p\n return p()",
                                    "x * g()", ""),
        "a clock by __import__": ("", "x * __import__('time').perf_counter()", ""),
        "a date": ("import datetime; now = datetime.datetime.now", "x * now().microsecond", ""),
        "the time of the process": ("import resource as r",
                                    "x * r.getrusage(r.RUSAGE_SELF).ru_utime", ""),
        "a file": ("import tempfile; p = tempfile.mktemp(); open(p, 'w').write('2')\n"
                   "def g():\n with open(p) as f: return float(f.read())", "x * g()",
                   "open(p, 'w').write('5')"),
        "a file by its path": ("import pathlib, tempfile; p = pathlib.Path(tempfile.mktemp())\n"
                               "p.write_text('2')", "x * float(p.read_text())",
                               "p.write_text('5')"),
        "a file read by NumPy": ("import numpy as np, tempfile; p = tempfile.mktemp()\n"
                                 "np.ones(3).tofile(p)", "x * np.fromfile(p)",
                                 "np.zeros(3).tofile(p)"),
        "an archive": ("import zipfile, tempfile; p = tempfile.mktemp()\ndef w(v):\n"
                       " with zipfile.ZipFile(p, 'w') as z: z.writestr('a', v)\nw('2')\ndef g():\n"
                       " with zipfile.ZipFile(p) as z: return float(z.read('a'))", "x * g()",
                       "w('5')"),
        "whether a file is there": ("import os, tempfile; p = tempfile.mkdtemp()",
                                    "x * os.path.exists(p)", "os.rmdir(p)"),
        "a setting of NumPy": ("import numpy as np", "x * len(np.geterr()['under'])",
                               "old = np.seterr(under='warn')", "np.seterr(**old)"),
        "what logging is set to": ("import logging; logging.getLogger('of_a_user').setLevel(10)",
                                   "x * logging.getLogger('of_a_user').level",
                                   "logging.getLogger('of_a_user').setLevel(20)"),
        "a limit of Python": ("import sys; n = sys.getrecursionlimit()",
                              "x * sys.getrecursionlimit()", "sys.setrecursionlimit(n + 1)",
                              "sys.setrecursionlimit(n)"),
        "references": ("import sys; o = object(); l = []", "x * sys.getrefcount(o)", "l.append(o)"),
        "threads": ("import threading; e = threading.Event()", "x * threading.active_count()",
                    "threading.Thread(target=e.wait, daemon=True).start()", "e.set()"),
        "a handler of signals": ("import signal", "x * (signal.getsignal(signal.SIGUSR1) == 0)",
                                 "old = signal.signal(signal.SIGUSR1, lambda *_: None)",
                                 "signal.signal(signal.SIGUSR1, old)"),
        "a resolved name": ("import pkgutil, sys, types; m = types.ModuleType('u'); m.r = 2.0\n"
                            "sys.modules['of_a_user'] = m",
                            "x * pkgutil.resolve_name('of_a_user:r')", "m.r = 5.0"),
        "what the garbage collector sees": ("import gc; l = [2.0]", "x * gc.get_referents(l)[0]",
                                            "l[0] = 5.0"),
    },
    "what C code hides": {
        "a number of ctypes": ("import ctypes; c = ctypes.c_double(2.0)", "x * c.value",
                               "c.value = 5.0"),
        "an array of ctypes": ("import ctypes; c = (ctypes.c_double * 2)(2.0, 3.0)", "x * c[0]",
                               "c[0] = 5.0"),
        "a structure of ctypes": ("import ctypes\nclass S(ctypes.Structure):\n"
                                  " _fields_ = [('a', ctypes.c_double)]\ns = S(2.0)", "x * s.a",
                                  "s.a = 5.0"),
        "a mapped file": ("import mmap; m = mmap.mmap(-1, 16); m[0] = 2", "x * m[0]", "m[0] = 5"),
        "a queue of C": ("import queue; q = queue.SimpleQueue()", "x * q.qsize()", "q.put(1)"),
        "a lock": ("import threading; l = threading.Lock()", "x * l.locked()", "l.acquire()"),
        "the context of decimals": ("import decimal", "x * decimal.getcontext().prec",
                                    "decimal.getcontext().prec += 1"),
        "a context": ("import contextvars; v = contextvars.ContextVar('v', default=2.0)\n"
                      "c = contextvars.copy_context()", "x * c.run(v.get)", "c.run(v.set, 5.0)"),
        "a database": ("import sqlite3; c = sqlite3.connect(':memory:')\n"
                       "c.execute('create table t(a)'); c.execute('insert into t values(2.0)')",
                       "x * c.execute('select a from t').fetchone()[0]",
                       "c.execute('update t set a = 5.0')"),
        "a ufunc of a function": (OBJECT + "import numpy as np; o = Plain(r=2.0)\n"
                                  "u = np.frompyfunc(lambda _: o.r, 1, 1)", "x * float(u(0))",
                                  "o.r = 5.0"),
        "an element of XML": ("import xml.etree.ElementTree as E; e = E.fromstring('<a r=\"2\"/>')",
                              "x * float(e.get('r'))", "e.set('r', '5')"),
        "an exception": ("e = ValueError(2.0)", "x * e.args[0]", "e.args = (5.0,)"),
        "a structured scalar": ("import numpy as np; a = np.array([(2.0,)], [('r', float)])\n"
                                "v = a[0]", "x * v['r']", "a[0] = (5.0,)"),
        "a tree of SciPy": ("from scipy.spatial import cKDTree; t = [cKDTree([[2.0], [3.0]])]",
                            "x * t[0].query([0.0])[0]", "t[0] = cKDTree([[5.0]])"),
    },
    "other holders": {
        "a property of a metaclass": ("class M(type):\n p = property(lambda cls: cls._r)\n"
                                      "class K(metaclass=M): _r = 2.0", "x * K.p", "K._r = 5.0"),
        "dispatch": ("import functools\n@functools.singledispatch\ndef g(n): return 2.0",
                     "x * g(1)", "g.register(int, lambda n: 5.0)"),
        "a queue": ("import queue; q = queue.Queue()", "x * q.qsize()", "q.put(1)"),
        "an event": ("import threading; e = threading.Event()", "x * e.is_set()", "e.set()"),
        "a parsed configuration": ("import configparser; c = configparser.ConfigParser()\n"
                                   "c['a'] = {'r': '2'}", "x * float(c['a']['r'])",
                                   "c['a']['r'] = '5'"),
        "an instance check": ("class M(type):\n v = True\n"
                              " def __instancecheck__(cls, _): return M.v\n"
                              "class K(metaclass=M): pass",
                              "x * (2.0 if isinstance(1, K) else 5.0)", "M.v = False"),
        "a view of a dict": ("d = {'a': 2.0}; k = d.keys()", "x * len(k)", "d['b'] = 1"),
        "a proxy of a dict": ("import types; d = {'r': 2.0}; p = types.MappingProxyType(d)",
                              "x * p['r']", "d['r'] = 5.0"),
        "a weak dict": (OBJECT + "import weakref; o = Plain(); d = weakref.WeakKeyDictionary()\n"
                        "d[o] = 2.0", "x * d[o]", "d[o] = 5.0"),
        "an array of objects": ("import numpy as np; a = np.array([2.0], dtype=object)",
                                "x * float(a[0])", "a[0] = 5.0"),
        "a bytearray": ("b = bytearray([2]); m = memoryview(b)", "x * m[0]", "b[0] = 5"),
        "an array of Python": ("import array; a = array.array('d', [2.0])", "x * a[0]",
                               "a[0] = 5.0"),
        "an item": ("import os; os.environ['FD_A'] = '2'", "x * float(os.environ['FD_A'])",
                    "os.environ['FD_A'] = '5'"),
        "a default": ("import os; os.environ['FD_A'] = '2'\n"
                      "def g(e=os.environ): return float(e['FD_A'])", "x * g()",
                      "os.environ['FD_A'] = '5'"),
        "bytes": ("import os; os.environ['FD_A'] = '2'", "x * float(os.environb[b'FD_A'])",
                  "os.environ['FD_A'] = '5'"),
        "a copy": ("import os; os.environ['FD_A'] = '2'", "x * float(dict(os.environ)['FD_A'])",
                   "os.environ['FD_A'] = '5'"),
        "a context variable": ("import contextvars; v = contextvars.ContextVar('v', default=2.0)",
                               "x * v.get()", "v.set(5.0)"),
        "a thread local": ("import threading; o = threading.local(); o.r = 2.0", "x * o.r",
                           "o.r = 5.0"),
        "a weak reference": (OBJECT + "import weakref; o = Plain(); w = weakref.ref(o)",
                             "x * (2.0 if w() else 5.0)", "del o"),
        "a weak method": ("import weakref\nclass K:\n r = 2.0\n def m(self): return self.r\n"
                          "k = K(); w = weakref.WeakMethod(k.m)", "x * w()()", "k.r = 5.0"),
        "through a memoryview": ("import numpy as np; a = np.ones(3); m = memoryview(a)",
                                 "x * m[0]", "a[0] = 5.0"),
        "a memory map": ("import numpy as np, tempfile; f = tempfile.NamedTemporaryFile()\n"
                         "f.write(bytes(24)); f.flush()\nm = np.memmap(f.name, float, 'r+')\n"
                         "r = np.memmap(f.name, float, 'r')", "x * r", "m[0] = 5.0"),
    },
    "names at run time": {
        "eval": ("r = 2.0", "x * eval('r')", "r = 5.0"),
        "exec": ("d = {'r': 2.0}\ndef g():\n exec('y = r', d)\n return d['y']", "x * g()",
                 "d['r'] = 5.0"),
        "globals": ("r = 2.0; n = 'r'", "x * globals()[n]", "r = 5.0"),
        "the globals of a function": ("r = 2.0; n = 'r'\ndef g(): pass", "x * g.__globals__[n]",
                                      "r = 5.0"),
        "a frame": ("import sys\ndef g(): return sys._getframe(1).f_lineno", "x * g()", ""),
        "subclasses": ("class A: pass", "x * len(A.__subclasses__())", "class B(A): pass"),
        "the variables of a closure": ("import inspect; r = 2.0\ndef g(): return r",
                                       "x * inspect.getclosurevars(g).globals['r']", "r = 5.0"),
    },
    "arrays with operators of their own": {
        "a matrix": ("import numpy as np; m = np.matrix(np.ones((3, 3)))", "x * float(m[0, 0])",
                     "m[0, 0] = 5.0"),
        "a masked array": ("import numpy as np; m = np.ma.array([1.0, 2.0, 3.0])",
                           "x * m.filled(7.0)", "m[0] = np.ma.masked"),
        "a subclass": ("import numpy as np\nclass A(np.ndarray):\n"
                       " def __rmul__(self, x): return x\na = np.ones(3).view(A)", "x * a[0]",
                       "a[0] = 5.0"),
    },
}  # fmt: skip

CONSTANT = {
    "fields of frozen objects": {
        "of a layer": ("import fdbr.nn as nn, fdbr, numpy as np\n"
                       "l = nn.Linear.init(fdbr.random.key(0), 3, 3)", "l(x)",
                       "object.__setattr__(l, 'weight', np.ones((3, 3)))"),
    },
    "variables inside libraries": {
        "a table of a library": ("import html, html.entities\n"
                                 "html.entities.html5['of_a_user;'] = 'aa'",
                                 "x * len(html.unescape('&of_a_user;'))",
                                 "html.entities.html5['of_a_user;'] = 'aaaaa'"),
    },
    "types of traced values": {
        "of an argument": ("import numpy as np", "x * (2.0 if type(x) is np.ndarray else 5.0)", ""),
    },
}  # fmt: skip


def made(source, expression):
    module = types.ModuleType("a_module_of_the_user")
    exec(f"{source}\nf = lambda x: {expression}", vars(module))
    return module


def members(rows):
    return pytest.mark.parametrize("member", [
        pytest.param(member, id=f"{row}: {name}")
        for row, named in rows.items()
        for name, member in named.items()
    ])  # fmt: skip


def outcomes(source, expression, change, undo=""):
    """What each of six calls does, three before and three after a change; and the report."""
    module = made(source, expression)
    jitted = fdbr.jit(module.f)
    found = []

    def call():
        before = jitted.report().eager
        try:
            result = jitted(X)
        except ImpureError:
            return "raises"
        if jitted.report().eager > before:
            return "eager"
        return "right" if np.array_equal(result, module.f(X)) else "stale"

    try:
        found += [call(), call(), call()]
        exec(change, vars(module))
        found += [call(), call(), call()]
    finally:
        exec(undo, vars(module))
    return found, jitted.report()


@members(WATCHED)
def test_what_is_watched_is_traced_and_right_after_a_change(member):
    found, _ = outcomes(*member)
    assert "stale" not in found
    assert "right" in found[:3]


@members(EAGER)
def test_what_cannot_be_watched_is_refused_or_runs_at_every_call(member):
    found, report = outcomes(*member)
    assert set(found) <= {"eager", "raises"}
    assert "raises" in found or report.obstacles


@members(CONSTANT)
def test_what_is_taken_as_constant_stays_what_it_was_and_a_check_finds_it(member):
    found, _ = outcomes(*member)
    assert "stale" in found
    module = made(*member[:2])
    checked = fdbr.jit(module.f, check=1)

    def changed_between_calls():
        checked(X)
        exec(member[2], vars(module))
        checked(X)

    with pytest.raises(ImpureError):
        changed_between_calls()


def test_one_array_given_twice_runs_eagerly_where_identity_is_asked_for():
    jitted = fdbr.jit(lambda x, y: x * (2.0 if x is y else 5.0))
    assert (jitted(X, X.copy()) == X * 5).all()
    assert (jitted(X, X) == X * 2).all()
    assert jitted.report().eager == 1


def test_the_rows_of_the_table_are_those_tested_here():
    text = pathlib.Path(__file__).parents[2].joinpath("docs/jit.md").read_text(encoding="utf-8")
    table = text[text.index("| holder |") : text.index("Everything else that")]
    rows = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)
    assert rows[1:] == list(WATCHED)
