"""docs/reference/by-example.md: what the case files say, as a page."""

from pathlib import Path

import pytest

from tools.by_example import CASES, PAGE, contents, page


@pytest.mark.slow
def test_page_is_what_the_case_files_make_it() -> None:
    """`make docs` writes it."""
    assert PAGE.read_text() == page(), "the case files have changed: run `make docs`"


def test_every_case_stands_in_one_chapter() -> None:
    """A case that no chapter names would not be read."""
    listed = [name for chapter in contents() for name in chapter["cases"]]
    assert sorted(listed) == sorted(path.stem for path in Path(CASES).glob("*.yaml"))
