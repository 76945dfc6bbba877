"""Garbage is looked for seldom while a program is built, and as before afterwards."""

import gc

import pytest

from fdbr.compiler.engine.garbage_collection import collecting_seldom


def test_the_collector_is_as_it_was_after_the_block() -> None:
    before = gc.get_threshold()

    @collecting_seldom()
    def fails() -> None:
        assert gc.get_threshold()[0] > before[0]
        with collecting_seldom():
            pass
        assert gc.get_threshold()[0] > before[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert gc.get_threshold() == before


def test_who_has_no_garbage_looked_for_has_none_looked_for_then() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with collecting_seldom():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
