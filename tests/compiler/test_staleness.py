"""A jitted function gives what the function itself gives, whatever changes around it.

Each case is made anew by a function that gives the function to be jitted and a change of something
that it reads.  After the change the jitted function gives what the function gives, or there is an
error that says what has changed; where nothing can be watched, the report says why it runs eagerly.
"""

import array
import builtins
import collections
import contextvars
import dataclasses
import enum
import functools
import importlib
import io
import itertools
import operator
import os
import re
import sys
import tempfile
import threading
import time
import types
import weakref

import attrs
import numpy as np
import pytest

import fdbr
from fdbr import ImpureError

pytestmark = pytest.mark.unchecked  # a comparison would find what guards are to find

X = np.array([1.0, -2.0, 3.0])

CASES = {}


def case(make):
    """Enter a case into the table."""
    assert make.__name__ not in CASES
    CASES[make.__name__] = make
    return make


def module(source, name="a_module_of_the_user"):
    """A module of the user's own."""
    made = types.ModuleType(name)
    exec(source, vars(made))
    return made


class Plain:
    """An object with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


# --- what Python calls by itself ----------------------------------------------------


@case
def the_call_of_a_class_is_defined_anew():
    m = module("class C:\n def __call__(self, x): return x * 2.0\nf = C()")
    return m.f, lambda: setattr(m.C, "__call__", lambda self, x: x * 5.0)


@case
def an_operator_of_a_class_is_defined_anew():
    m = module(
        "class C:\n def __rmul__(self, x): return x[0]\n def __len__(self): return 2\nc = C()\n"
        "def f(x): return x * len(c)"
    )
    return m.f, lambda: setattr(m.C, "__len__", lambda self: 5)


@case
def a_context_manager_is_defined_anew():
    m = module(
        "class C:\n def __enter__(self): return 2.0\n def __exit__(self, *args): pass\nc = C()\n"
        "def f(x):\n with c as rate: return x * rate"
    )
    return m.f, lambda: setattr(m.C, "__enter__", lambda self: 5.0)


@case
def a_descriptor_gets_a_setter():
    m = module(
        "class D:\n def __get__(self, obj, cls): return 2.0\nclass C: d = D()\nc = C()\n"
        "vars(c)['d'] = 5.0\ndef f(x): return x * c.d"
    )
    return m.f, lambda: setattr(m.D, "__set__", lambda self, obj, value: None)


@case
def a_class_is_registered_with_an_abstract_one():
    m = module(
        "import abc\nclass A(abc.ABC): pass\nclass C: pass\nc = C()\n"
        "def f(x): return x * (2.0 if isinstance(c, A) else 5.0)"
    )
    return m.f, lambda: m.A.register(m.C)


@case
def a_variable_of_a_module_with_getattr_is_added():
    m = module("def __getattr__(name): return 2.0")
    return (lambda x: x * m.rate), lambda: setattr(m, "rate", 5.0)


@case
def the_items_of_a_dict_are_seen_through_a_view():
    rates = {"a": 2.0}
    values = rates.values()
    return (lambda x: x * sum(values)), lambda: rates.update(b=5.0)


@case
def the_items_of_a_user_dict_are_seen_through_a_view():
    rates = collections.UserDict(a=2.0)
    values = rates.values()
    return (lambda x: x * sum(values)), lambda: rates.update(b=5.0)


# --- settings, and what is outside of the process -----------------------------------


@case
def what_numpy_does_about_errors():
    def change():
        before = np.seterr(under="warn")
        undo.append(lambda: np.seterr(**before))

    return (lambda x: x * (2.0 if np.geterr()["under"] == "ignore" else 5.0)), change


@case
def how_numpy_prints():
    before = np.get_printoptions()["precision"]

    def change():
        np.set_printoptions(precision=before + 1)
        undo.append(lambda: np.set_printoptions(precision=before))

    return (lambda x: x * np.get_printoptions()["precision"]), change


@case
def whether_a_file_is_there():
    folder = tempfile.mkdtemp()
    return (lambda x: x * (2.0 if os.path.exists(folder) else 5.0)), lambda: os.rmdir(folder)


@case
def a_module_that_is_imported_by_its_name():
    sys.modules["made_for_this"] = m = module("rate = 2.0", "made_for_this")
    return (
        lambda x: x * importlib.import_module("made_for_this").rate,
        lambda: setattr(m, "rate", 5.0),
    )


# --- globals and builtins -----------------------------------------------------------


@case
def a_global_read_by_a_static_method():
    m = module(
        "rate = 2.0\nclass C:\n @staticmethod\n def f(x): return x * rate\ndef f(x): return C.f(x)"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_global_read_by_a_class_method():
    m = module(
        "rate = 2.0\nclass C:\n @classmethod\n def f(cls, x): return x * rate\n"
        "def f(x): return C().f(x)"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_global_read_by_a_property():
    m = module(
        "rate = 2.0\nclass C:\n @property\n def r(self): return rate\nc = C()\n"
        "def f(x): return x * c.r"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_global_read_by_a_descriptor():
    m = module(
        "rate = 2.0\nclass D:\n def __get__(self, obj, cls): return rate\nclass C:\n r = D()\n"
        "c = C()\ndef f(x): return x * c.r"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_global_read_by_a_metaclass():
    m = module(
        "rate = 2.0\nclass M(type):\n def __getattr__(cls, name): return rate\n"
        "class C(metaclass=M): pass\ndef f(x): return x * C.anything"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_global_read_by_getattr_of_an_object():
    m = module(
        "rate = 2.0\nclass C:\n def __getattr__(self, name): return rate\nc = C()\n"
        "def f(x): return x * c.r"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def an_attribute_added_where_getattr_answered():
    m = module(
        "class C:\n def __getattr__(self, name): return 2.0\nc = C()\ndef f(x): return x * c.r"
    )
    return m.f, lambda: setattr(m.c, "r", 5.0)


@case
def a_global_defined_later():
    m = module("def f(x):\n try: return x * rate\n except NameError: return x")
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_builtin_shadowed_later():
    m = module("def f(x): return x * len([1, 2])")
    return m.f, lambda: setattr(m, "len", lambda _: 5.0)


@case
def a_builtin_replaced():
    m = module("def f(x): return x * surely_no_builtin()")
    builtins.surely_no_builtin = lambda: 2.0
    return m.f, lambda: setattr(builtins, "surely_no_builtin", lambda: 5.0)


@case
def a_global_deleted():
    m = module("rate = 2.0\ndef f(x):\n try: return x * rate\n except NameError: return x")
    return m.f, lambda: delattr(m, "rate")


@case
def globals_by_name():
    m = module("rate = 2.0\ndef f(x): return x * globals()['ra' + 'te']")
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def globals_by_eval():
    m = module("rate = 2.0\ndef f(x): return x * eval('rate')")
    return m.f, lambda: setattr(m, "rate", 5.0)


@case
def a_module_imported_inside_the_function():
    m = sys.modules["settings_of_a_test"] = module("rate = 2.0", "settings_of_a_test")

    def f(x):
        import settings_of_a_test

        return x * settings_of_a_test.rate

    return f, lambda: setattr(m, "rate", 5.0)


@case
def a_name_imported_inside_the_function():
    m = sys.modules["settings_of_a_test"] = module("rate = 2.0", "settings_of_a_test")

    def f(x):
        from settings_of_a_test import rate

        return x * rate

    return f, lambda: setattr(m, "rate", 5.0)


@case
def a_module_replaced():
    sys.modules["settings_of_a_test"] = module("rate = 2.0", "settings_of_a_test")

    def f(x):
        import settings_of_a_test as s

        return x * s.rate

    return f, lambda: sys.modules.update(settings_of_a_test=module("rate = 5.0"))


@case
def a_function_of_a_library_replaced():
    import math

    old = math.floor
    undo.append(lambda: setattr(math, "floor", old))
    return lambda x: x * math.floor(2.5), lambda: setattr(math, "floor", lambda _: 5)


@case
def a_module_with_getattr():
    m = module("rate = 2.0\ndef __getattr__(name): return rate")
    return lambda x: x * m.anything, lambda: setattr(m, "rate", 5.0)


undo = []

# --- containers ---------------------------------------------------------------------


class MyDict(dict):
    """A dict with a method of its own."""

    def rate(self):
        return self["rate"]


class MyList(list):
    """A list of another class."""


@case
def a_subclass_of_dict():
    d = MyDict(rate=2.0)
    return lambda x: x * d["rate"], lambda: d.update(rate=5.0)


@case
def a_nested_subclass_of_dict():
    d = {"deep": MyDict(rate=MyList([2.0]))}
    return lambda x: x * d["deep"].rate()[0], lambda: d["deep"]["rate"].__setitem__(0, 5.0)


@case
def a_user_dict():
    d = collections.UserDict(rate=2.0)
    return lambda x: x * d["rate"], lambda: d.update(rate=5.0)


@case
def a_derived_user_dict():
    class Config(collections.UserDict):
        pass

    d = Config(rate=2.0)
    return lambda x: x * d["rate"], lambda: d.update(rate=5.0)


@case
def a_user_list():
    d = collections.UserList([2.0])
    return lambda x: x * d[0], lambda: d.__setitem__(0, 5.0)


@case
def a_default_dict():
    d = collections.defaultdict(lambda: 2.0)
    return lambda x: x * d.get("rate", 2.0), lambda: d.update(rate=5.0)


@case
def an_ordered_dict_in_another_order():
    d = collections.OrderedDict(a=2.0, b=5.0)
    return lambda x: x * next(iter(d.values())), lambda: d.move_to_end("a")


@case
def a_chain_map():
    inner = {"rate": 2.0}
    d = collections.ChainMap({}, inner)
    return lambda x: x * d["rate"], lambda: inner.update(rate=5.0)


@case
def a_counter():
    d = collections.Counter("aa")
    return lambda x: x * d["a"], lambda: d.update("a")


@case
def a_mapping_proxy():
    inner = {"rate": 2.0}
    d = types.MappingProxyType(inner)
    return lambda x: x * d["rate"], lambda: inner.update(rate=5.0)


@case
def an_object_in_a_set():
    one = Plain(rate=2.0)
    s = {one}
    return lambda x: x * sum(o.rate for o in s), lambda: setattr(one, "rate", 5.0)


@case
def an_object_in_a_tuple_in_a_frozenset():
    one = Plain(rate=2.0)
    s = frozenset({(one,)})
    return lambda x: x * sum(o.rate for (o,) in s), lambda: setattr(one, "rate", 5.0)


@case
def a_deque():
    d = collections.deque([2.0, 5.0])
    return lambda x: x * d[0], lambda: d.rotate()


@case
def a_named_tuple_with_a_list():
    t = collections.namedtuple("T", "rates")([2.0])
    return lambda x: x * t.rates[0], lambda: t.rates.__setitem__(0, 5.0)


@case
def a_bytearray():
    b = bytearray([2])
    return lambda x: x * b[0], lambda: b.__setitem__(0, 5)


@case
def an_array_of_python():
    a = array.array("d", [2.0])
    return lambda x: x * a[0], lambda: a.__setitem__(0, 5.0)


@case
def an_array_of_objects():
    one = Plain(rate=2.0)
    a = np.array([one], dtype=object)
    return lambda x: x * a[0].rate, lambda: setattr(one, "rate", 5.0)


@case
def an_element_of_an_array_of_objects():
    a = np.array([2.0], dtype=object)
    return lambda x: x * float(a[0]), lambda: a.__setitem__(0, 5.0)


# --- attributes ---------------------------------------------------------------------


class Base:
    """Slots, of which one is private."""

    __slots__ = ("__hidden", "rate")

    def __init__(self, rate):
        self.rate = self.__hidden = rate

    def hidden(self):
        return self.__hidden

    def hide(self, value):
        self.__hidden = value


class Derived(Base):
    __slots__ = ()


class WithDict(Base):
    """Slots, and a dictionary."""


@case
def a_slot_of_a_base_class():
    d = Derived(2.0)
    return lambda x: x * d.rate, lambda: setattr(d, "rate", 5.0)


@case
def a_private_slot():
    d = Derived(2.0)
    return lambda x: x * d.hidden(), lambda: d.hide(5.0)


@case
def a_slot_of_an_object_with_a_dictionary():
    d = WithDict(2.0)
    return lambda x: x * d.rate, lambda: setattr(d, "rate", 5.0)


@case
def a_private_attribute():
    m = module(
        "class C:\n def __init__(self): self.__r = 2.0\n def r(self): return self.__r\n"
        " def set(self, r): self.__r = r\nc = C()\ndef f(x): return x * c.r()"
    )
    return m.f, lambda: m.c.set(5.0)


@case
def an_attribute_over_that_of_the_class():
    m = module("class C:\n rate = 2.0\nc = C()\ndef f(x): return x * c.rate")
    return m.f, lambda: setattr(m.c, "rate", 5.0)


@case
def an_attribute_that_is_deleted():
    m = module("class C:\n rate = 2.0\nc = C()\nc.rate = 3.0\ndef f(x): return x * c.rate")
    return m.f, lambda: delattr(m.c, "rate")


@case
def an_attribute_of_the_class():
    m = module("class C:\n rate = 2.0\nc = C()\ndef f(x): return x * c.rate")
    return m.f, lambda: setattr(m.C, "rate", 5.0)


@case
def an_attribute_of_a_derived_class_added_over_that_of_the_base():
    m = module("class B:\n rate = 2.0\nclass C(B): pass\nc = C()\ndef f(x): return x * c.rate")
    return m.f, lambda: setattr(m.C, "rate", 5.0)


@case
def an_attribute_added_that_is_asked_for():
    o = Plain()
    return lambda x: x * getattr(o, "rate", 2.0), lambda: setattr(o, "rate", 5.0)


@case
def an_attribute_added_while_another_goes():
    o = Plain(other=1)

    def change():
        del o.other
        o.rate = 5.0

    return lambda x: x * getattr(o, "rate", 2.0), change


@case
def an_attribute_added_to_a_class_that_is_asked_for():
    m = module("class C: pass\nc = C()\ndef f(x): return x * (5 if hasattr(c, 'rate') else 2)")
    return m.f, lambda: setattr(m.C, "rate", 5.0)


@case
def an_attribute_by_a_computed_name():
    o, name = Plain(rate=2.0), "ra"
    return lambda x: x * getattr(o, name + "te"), lambda: setattr(o, "rate", 5.0)


@case
def an_attribute_by_vars():
    o = Plain(rate=2.0)
    return lambda x: x * vars(o)["ra" + "te"], lambda: setattr(o, "rate", 5.0)


@case
def an_attribute_by_attrgetter():
    o = Plain(inner=Plain(rate=2.0))
    get = operator.attrgetter("inner.rate")
    return lambda x: x * get(o), lambda: setattr(o.inner, "rate", 5.0)


@case
def an_attribute_by_match():
    o = Plain(rate=2.0)

    def f(x):
        match o:
            case Plain(rate=r):
                return x * r
        return x

    return f, lambda: setattr(o, "rate", 5.0)


@case
def an_attribute_by_match_args():
    m = module(
        "class C:\n __match_args__ = ('rate',)\nc = C()\nc.rate = 2.0\n"
        "def f(x):\n match c:\n  case C(r): return x * r"
    )
    return m.f, lambda: setattr(m.c, "rate", 5.0)


@case
def another_class():
    m = module("class A:\n r = 2.0\nclass B:\n r = 5.0\nc = A()\ndef f(x): return x * c.r")
    return m.f, lambda: setattr(m.c, "__class__", m.B)


@case
def other_bases():
    m = module(
        "class A:\n r = 2.0\nclass B:\n r = 5.0\nclass C(A): pass\nc = C()\n"
        "def f(x): return x * c.r"
    )
    return m.f, lambda: setattr(m.C, "__bases__", (m.B,))


@case
def a_simple_namespace():
    o = types.SimpleNamespace(inner=types.SimpleNamespace(rate=2.0))
    return lambda x: x * o.inner.rate, lambda: setattr(o.inner, "rate", 5.0)


@case
def a_dataclass():
    @dataclasses.dataclass
    class Config:
        rate: float = 2.0

    c = Config()
    return lambda x: x * c.rate, lambda: setattr(c, "rate", 5.0)


@case
def a_dataclass_as_a_dict():
    @dataclasses.dataclass
    class Config:
        rate: float = 2.0

    c = Config()
    return lambda x: x * sum(dataclasses.asdict(c).values()), lambda: setattr(c, "rate", 5.0)


@case
def a_class_of_attrs():
    @attrs.define
    class Config:
        rate: float = 2.0

    c = Config()
    return lambda x: x * c.rate, lambda: setattr(c, "rate", 5.0)


@case
def an_attribute_of_a_member_of_an_enumeration():
    class Mode(enum.Enum):
        A = 1

    Mode.A.rate = 2.0
    return lambda x: x * Mode.A.rate, lambda: setattr(Mode.A, "rate", 5.0)


@case
def a_cached_property():
    class C:
        def __init__(self):
            self.rate = 2.0

        @functools.cached_property
        def twice(self):
            return 2 * self.rate

    c = C()
    return lambda x: x * c.twice, lambda: vars(c).update(twice=5.0)


@case
def an_attribute_of_a_thread():
    o = threading.local()
    o.rate = 2.0
    return lambda x: x * o.rate, lambda: setattr(o, "rate", 5.0)


@case
def a_method_of_what_each_thread_has_its_own_of():
    class Own(threading.local):
        def rate(self):
            return 2.0

    o = Own()
    return lambda x: x * o.rate(), lambda: setattr(Own, "rate", lambda self: 5.0)


@case
def a_function_with_attributes_added():
    def f(x):
        return x * getattr(f, "rate", 2.0)

    return f, lambda: setattr(f, "rate", 5.0)


# --- functions ----------------------------------------------------------------------


@case
def defaults_replaced():
    def f(x, rate=2.0):
        return x * rate

    return f, lambda: setattr(f, "__defaults__", (5.0,))


@case
def keyword_defaults_replaced():
    def f(x, *, rate=2.0):
        return x * rate

    return f, lambda: setattr(f, "__kwdefaults__", {"rate": 5.0})


@case
def a_keyword_default_changed():
    def f(x, *, rate=2.0):
        return x * rate

    return f, lambda: f.__kwdefaults__.update(rate=5.0)


@case
def code_replaced():
    def f(x):
        return x * 2

    return f, lambda: setattr(f, "__code__", (lambda x: x * 5).__code__)


@case
def code_of_a_helper_replaced():
    def helper(x):
        return x * 2

    return lambda x: helper(x), lambda: setattr(helper, "__code__", (lambda x: x * 5).__code__)


@case
def keywords_of_a_partial():
    p = functools.partial(lambda x, rate: x * rate, rate=2.0)
    return p, lambda: p.keywords.update(rate=5.0)


@case
def keywords_of_a_partial_inside():
    p = functools.partial(lambda x, rate: x * rate, rate=2.0)
    return lambda x: p(x), lambda: p.keywords.update(rate=5.0)


@case
def a_global_read_by_a_memoised_function():
    m = module(
        "import functools\nrate = 2.0\n@functools.cache\ndef g(n): return rate * n\n"
        "def f(x): return x * g(1)"
    )

    def change():
        m.rate = 5.0
        m.g.cache_clear()

    return m.f, change


@case
def a_memory_cleared_later():
    m = module(
        "import functools\nrate = 2.0\n@functools.lru_cache(4)\ndef g(n): return rate * n\n"
        "def f(x): return x * g(1)"
    )

    def change():
        m.rate = 5.0
        fdbr.jit(m.f)(X)  # which still remembers
        m.g.cache_clear()

    return m.f, change


@case
def a_closure_in_a_closure():
    rate = 2.0

    def outer():
        def inner(x):
            return x * rate

        return inner

    g = outer()

    def change():
        nonlocal rate
        rate = 5.0

    return lambda x: (lambda y: g(y))(x), change


@case
def a_variable_bound_later():
    def make():
        def f(x):
            try:
                return x * rate
            except NameError:
                return x * 2

        def change():
            nonlocal rate
            rate = 5.0

        if not X.size:
            rate = 0.0
        return f, change

    return make()


@case
def a_function_chosen_from_a_table():
    table = {"f": lambda x: x * 2}
    return lambda x: table["f"](x), lambda: table.update(f=lambda x: x * 5)


@case
def a_function_by_dispatch():
    @functools.singledispatch
    def g(n):
        return 2.0

    return lambda x: x * g(1), lambda: g.register(int, lambda n: 5.0)


@case
def what_a_callable_object_holds():
    m = module(
        "class C:\n def __init__(self): self.r = [2.0]\n"
        " def __call__(self, x): return x * self.r[0]"
    )
    c = m.C()
    return c, lambda: c.r.__setitem__(0, 5.0)


@case
def a_wrapper_of_a_library():
    m = module(
        "import contextlib\nrate = 2.0\n@contextlib.contextmanager\ndef g(): yield rate\n"
        "def f(x):\n with g() as r: return x * r"
    )
    return m.f, lambda: setattr(m, "rate", 5.0)


# --- arrays -------------------------------------------------------------------------


@case
def the_mask_of_a_masked_array():
    m = np.ma.array([1.0, 2.0, 3.0], mask=[False, False, False])
    return lambda x: x * m.filled(7.0), lambda: m.__setitem__(0, np.ma.masked)


@case
def a_masked_array_as_operand():
    m = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    return lambda x: x * m, lambda: m.__setitem__(0, np.ma.masked)


@case
def a_zero_that_becomes_negative():
    w = np.zeros(3)
    return lambda x: x / 1.0 + np.copysign(1.0, w), lambda: w.__setitem__(0, -0.0)


@case
def a_complex_zero_that_becomes_negative():
    w = np.zeros(3, complex)
    return lambda x: x + np.angle(w), lambda: w.__setitem__(0, complex(-0.0, 0.0))


@case
def a_read_only_array_unlocked_and_changed():
    w = np.ones(3)
    w.flags.writeable = False

    def change():
        w.flags.writeable = True
        w[0] = 5.0

    return lambda x: x * w, change


@case
def a_read_only_view_of_an_array():
    whole = np.ones(6)
    w = whole[:3]
    w.flags.writeable = False
    return lambda x: x * w, lambda: whole.__setitem__(0, 5.0)


@case
def a_structured_array():
    w = np.array([(2.0, np.nan)], dtype=[("rate", float), ("other", float)])
    return lambda x: x * w["rate"][0], lambda: w.__setitem__(0, (5.0, 1.0))


@case
def an_array_of_another_shape():
    w = np.arange(6.0)
    return lambda x: x * w.shape[0], lambda: setattr(w, "shape", (2, 3))


# --- the world ----------------------------------------------------------------------


@case
def the_environment():
    os.environ["FDBR_A_TEST"] = "2"
    return (
        lambda x: x * float(os.environ["FDBR_A_TEST"]),
        lambda: os.environ.update(FDBR_A_TEST="5"),
    )


@case
def the_environment_by_a_function():
    os.environ["FDBR_A_TEST"] = "2"
    return (
        lambda x: x * float(os.getenv("FDBR_A_TEST")),
        lambda: os.environ.update(FDBR_A_TEST="5"),
    )


@case
def a_context_variable():
    v = contextvars.ContextVar("v", default=2.0)
    return lambda x: x * v.get(), lambda: v.set(5.0)


@case
def an_iterator():
    it = iter([2.0, 5.0, 7.0, 9.0])
    return lambda x: x * it.__length_hint__(), lambda: next(it)


@case
def a_counting_iterator():
    it = itertools.count()
    return lambda x: x * float(repr(it)[6:-1]), lambda: next(it)


@case
def a_generator():
    def numbers():
        for i in range(10):
            state.append(i)
            yield i

    state = [0]
    it = numbers()
    return lambda x: x * len(it.gi_frame.f_locals), lambda: next(it)


@case
def a_file():
    file = io.StringIO("2 5")
    return lambda x: x * (1 + file.tell()), lambda: file.seek(2)


@case
def an_open_file():
    file = open(__file__)  # noqa: SIM115
    undo.append(file.close)

    def f(x):
        file.seek(0)
        return x * len(file.readline())

    return f, lambda: None


@case
def a_file_by_its_name():
    path = f"/tmp/fdbr-{os.getpid()}"

    def write(text):
        with open(path, "w") as file:
            file.write(text)

    def f(x):
        with open(path) as file:
            return x * float(file.read())

    write("2")
    undo.append(lambda: os.remove(path))
    return f, lambda: write("5")


@case
def a_file_read_by_numpy():
    path = f"/tmp/fdbr-{os.getpid()}.npy"
    np.save(path, np.array(2.0))
    undo.append(lambda: os.remove(path))
    return lambda x: x * np.load(path), lambda: np.save(path, np.array(5.0))


@case
def time_of_day():
    start = time.time()
    return lambda x: x * (time.time() - start > 0.01), lambda: time.sleep(0.02)


@case
def a_weak_reference():
    one = Plain()
    ref = weakref.ref(one)

    def change():
        nonlocal one
        one = None

    return lambda x: x * (2 if ref() is None else 5), change


# --- the law ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_changes_around_a_function_counts(name):
    f, change = CASES[name]()
    try:
        jitted = fdbr.jit(f)
        for _ in range(3):
            assert_same_bits(jitted(X), f(X))
        change()
        for _ in range(3):
            try:
                found = jitted(X)
            except ImpureError:
                continue
            assert_same_bits(found, f(X))
    finally:
        while undo:
            undo.pop()()


def assert_same_bits(found, desired):
    assert type(found) is type(desired)
    assert np.asarray(found).tobytes() == np.asarray(desired).tobytes(), (found, desired)
    if isinstance(desired, np.ma.MaskedArray):
        assert np.array_equal(found.mask, desired.mask)


@pytest.mark.parametrize(("name", "reason"), [
    ("globals_by_eval", "looks for variables by name, with eval"),
    ("globals_by_name", "looks for variables by name, with globals"),
    ("an_iterator", "it can reach it, of type list_iterator, which is used up"),
    ("a_counting_iterator", "it can reach it, of type count, which is used up"),
    ("a_generator", "looks for variables by name, with f_locals"),
    ("a_file", "it can reach file, of type StringIO, which is used up"),
    ("a_file_by_its_name", "can call open"),
    ("a_file_read_by_numpy", "can call numpy.load"),
    ("time_of_day", "can call time of time"),
    ("a_masked_array_as_operand", "MaskedArray, which has operators of its own"),
])  # fmt: skip
def test_the_report_says_what_cannot_be_watched(name, reason):
    f, _ = CASES[name]()
    jitted = fdbr.jit(f)
    try:
        for _ in range(3):
            jitted(X)
        assert re.search(reason, str(jitted.report()))
        assert jitted.report().eager == 3
    finally:
        while undo:
            undo.pop()()


def test_what_code_does_not_mention_may_change():
    one = Plain(rate=2.0, count=0)
    jitted = fdbr.jit(lambda x: x * one.rate)
    for step in range(20):
        one.count = step
        setattr(one, f"more_{step}", step)
        jitted(X)
    assert len(jitted.report().traces) == 1
    assert jitted.report().traces[0].runs == 19
