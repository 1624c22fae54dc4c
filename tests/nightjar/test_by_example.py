"""docs/reference/by-example: what the case files say, as pages."""

from pathlib import Path

import pytest

from tools.by_example import CASES, PAGES, contents, pages


@pytest.mark.slow
def test_pages_are_what_the_case_files_make_them() -> None:
    """`make docs` writes them, and none is longer than what a person scrolls through."""
    made = pages()
    written = {path.name: path.read_text() for path in PAGES.iterdir()}
    assert written == made, "the case files have changed: run `make docs`"
    assert max(len(text.splitlines()) for text in made.values()) < 500


def test_every_case_stands_in_one_chapter() -> None:
    """A case that no chapter names would not be read."""
    listed = [name for chapter in contents() for name in chapter["cases"]]
    assert sorted(listed) == sorted(path.stem for path in Path(CASES).glob("*.yaml"))
