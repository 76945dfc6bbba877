"""docs/accuracy.md tells of every elementwise operation how exact it is, and why if it is not."""

import re
from pathlib import Path

import pytest

from benchmarks.accuracy.others import losses, others

PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"
ROWS = {
    cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
    for cells in [line.split("|")]
}


def test_every_public_elementwise_operation_with_a_derivative_has_a_row():
    missing = set(others(())) - set(ROWS)
    assert not missing, f"run python -m benchmarks.accuracy for {sorted(missing)}"


def test_what_is_off_by_more_than_four_units_in_the_last_place_has_a_reason():
    for name, (*errors, reason) in ROWS.items():
        largest = max(float(error) for cell in errors for error in cell.split(", "))
        assert largest <= 4 or re.match(r"\w.*\(worst at ", reason), (name, largest)


@pytest.mark.parametrize("name", ["k0e", "jv", "elliprf", "minimum", "xlog1py"])
def test_rows_are_what_the_script_measures(name):
    row = losses(name, 40)
    assert max(*row.eager, *row.jitted) <= 4
