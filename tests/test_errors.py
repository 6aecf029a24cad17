"""The closed list of errors: each says when it is raised and what to do, and is raised somewhere."""

import re
from pathlib import Path

import pytest

import abele
from abele.errors import AbeleError


@pytest.mark.parametrize("error", AbeleError.__subclasses__(), ids=lambda error: error.__name__)
def test_an_error_shows_what_raises_it_and_the_remedy(error):
    if error.__module__ != "abele.errors":
        pytest.skip("an error of another room")
    assert "Raised" in error.__doc__ and "``" in error.__doc__ and "Remedy:" in error.__doc__
    source = "\n".join(path.read_text() for path in Path(abele.__file__).parent.rglob("*.py"))
    assert re.search(rf"\b{error.__name__}\(\s*f?[\"']|\b{error.__name__}\(\s*\n", source), "raised nowhere"
