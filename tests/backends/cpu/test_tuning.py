"""Every size by which the CPU's library chooses has a program that measures it."""

import re
from pathlib import Path

import attrs
import pytest

import fdbr
from benchmarks import tune
from fdbr.backends.cpu.tuning import TUNING, Tuning

FIELDS = attrs.fields_dict(Tuning)


def test_there_are_few_sizes_and_each_is_read():
    assert len(FIELDS) <= 80
    cpu = Path(fdbr.__file__).parent / "backends" / "cpu"
    read = set()
    for path in cpu.rglob("*.py"):
        read |= set(re.findall(r'TUNING\.(\w+)|"(\w+_elements)"', path.read_text(encoding="utf-8")))
    assert FIELDS.keys() == {name for pair in read for name in pair if name}


def test_every_size_has_a_program_that_measures_it():
    assert {field.metadata["case"] for field in FIELDS.values()} == tune.CASES.keys()


@pytest.mark.parametrize("case", tune.CASES)
def test_the_programs_run_at_their_smallest_size(case):
    make, sizes = tune.CASES[case]
    make(sizes[0])()


@pytest.mark.slow
def test_a_size_is_measured_at_several_settings():
    ratios = tune.measured("sigmoid_elements", rounds=1)
    assert ratios[TUNING.sigmoid_elements] == 1
    assert set(ratios) == {128, 256, 512, 1024, 2048}
