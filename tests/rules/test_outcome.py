"""What an outcome says of itself."""

import pytest

from cmalight import Outcome


def test_the_accepted_ones_are_those_whose_own_end_was_welcome():
    accepted = [one.name for one in Outcome if one.accepts]
    assert accepted == ["ACCEPTED", "KEPT"]
    assert all(Outcome[name].keeps for name in accepted)


@pytest.mark.parametrize("outcome", Outcome)
def test_what_was_undone_says_so(outcome):
    assert outcome.keeps != ("undone" in outcome.text or outcome is Outcome.NO_STEP)


def test_a_log_reads_by_itself():
    assert str(Outcome.DIVERGED) == "undone: NaN or infinity (line 5)"
