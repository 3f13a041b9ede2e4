"""Numbers as people read them."""

import pytest

from batonbus_schemas.counts import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (1_000, "1,000 events")]
)
def test_one_is_the_only_number_without_an_s(number: int, text: str) -> None:
    assert counted(number, "event") == text
