"""What the admin's pages have read lately."""

import pytest

from django_slidinglimit.admin import recent
from django_slidinglimit.admin.recent import Recent


def test_what_was_read_is_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Recent[str, int | None] = Recent(10)
    kept.add({"one": 1, "none": None})
    assert kept.known(["one", "none", "other"]) == {"one": 1, "none": None}
    monkeypatch.setattr(recent, "KEEP", 0.0)
    assert kept.known(["one", "none"]) == {}


def test_it_holds_no_more_than_it_has_room_for() -> None:
    kept: Recent[int, int] = Recent(3)
    for number in range(3):
        kept.add({number: number})
    assert len(kept.known(range(10))) == 3
    kept.add({7: 7})
    assert kept.known(range(10)) == {7: 7}
