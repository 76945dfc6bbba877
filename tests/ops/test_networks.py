"""What holds of every operation of networks and every special function."""

import pytest
from hypothesis import given, settings

from ops.cases_networks import OWN
from ops.laws import check_laws


@pytest.mark.parametrize("case", OWN, ids=repr)
def test_derivatives_and_batches_obey_the_laws(case):
    @settings(max_examples=2)
    @given(case.arguments)
    def check(args):
        check_laws(case, args)

    check()
