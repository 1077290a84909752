"""The limit on what a file may unpack to."""

import pytest

from cmalight.files import DEFAULT_LIMIT, refuse_larger, unpacking_limit


def test_the_limit_is_one_gibibyte_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMALIGHT_MAX_BYTES", raising=False)
    assert unpacking_limit() == DEFAULT_LIMIT == 2**30
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "4e9")
    assert unpacking_limit() == 4 * 10**9


@pytest.mark.parametrize("given", ["much", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", given)
    with pytest.raises(ValueError, match=rf"CMALIGHT_MAX_BYTES is '{given}'; expected a positive number of bytes"):
        unpacking_limit()


def test_what_is_larger_is_refused_with_the_way_to_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1000")
    refuse_larger("a.npz", 1000)
    with pytest.raises(KeyError, match=r"a\.npz would take .* MB.*CMALIGHT_MAX_BYTES=1001"):
        refuse_larger("a.npz", 1001, error=KeyError)
