"""The allowed lateness, read without what reads streams: it is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightjar.rules.errors import DeclarationError
from nightjar.rules.lateness import largest_allowed_lateness
from nightjar.rules.streams import load_streams

MINUTE = 60_000_000


def test_it_is_the_largest_of_the_shipped_streams() -> None:
    """As they are when read in full."""
    assert largest_allowed_lateness() == max(stream.allowed_lateness for stream in load_streams().values())


def test_a_stream_that_declares_none_has_the_default(tmp_path: Path) -> None:
    """Ten minutes, which may be more than what others declare."""
    file = tmp_path / "streams.toml"
    file.write_text('[streams.a]\nevent_id = "id"\n[streams.b]\nallowed_lateness = "2m"\n')
    assert largest_allowed_lateness(file) == 10 * MINUTE
    file.write_text('[streams.b]\nallowed_lateness = "2m"\n')
    assert largest_allowed_lateness(file) == 2 * MINUTE


@pytest.mark.parametrize(
    "written",
    [None, "", "[streams]\n", "streams = 3\n", "[streams.a\n", '[streams.a]\nallowed_lateness = "soon"\n'],
)
def test_a_file_without_it_is_refused(tmp_path: Path, written: str | None) -> None:
    """By its name; also where there is none."""
    file = tmp_path / "streams.toml"
    if written is not None:
        file.write_text(written)
    with pytest.raises(DeclarationError, match="allowed lateness") as refused:
        largest_allowed_lateness(file)
    assert str(file) in str(refused.value)
