"""What holds of every operation of networks and every special function."""

import pytest
from hypothesis import given, settings

from ops import cases_networks, cases_special
from ops.laws import check_laws


@pytest.mark.slow
@pytest.mark.parametrize("case", cases_networks.OWN + cases_special.OWN, ids=repr)
def test_derivatives_and_batches_obey_the_laws(case):
    @settings(max_examples=2)
    @given(case.arguments)
    def check(args):
        check_laws(case, args)

    check()
