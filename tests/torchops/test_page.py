"""The page of torch's operations is the one that the catalogue gives."""

from __future__ import annotations

from tests.torchops import page


def test_the_page_is_up_to_date() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run python -m tests.torchops.page"
