"""A server of pages that makes itself ready before somebody asks."""

import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nightjar.pages import readiness
from nightjar.pages.lake_reader import LakeReader
from tests.support.explained_lake import Ground, named, small_lake
from tests.support.payments import NOON
from tests.support.served_pages import serving

ENTITIES = ("/entity?field=customer_id&value=ann", "/entity?field=amount&value=1")
PATHS = ("/alerts", f"/alerts/{named()}", "/nights", "/rules", "/rules/limit", "/edit", "/alerts?group=ann", *ENTITIES)


def test_a_page_is_the_same_where_the_server_is_ready(tmp_path: Path) -> None:
    """And what comes after is shown, as where nothing is kept."""
    ground = small_lake(tmp_path)
    with serving(ground) as pages, serving(ground) as others:
        pages.readiness.get_ready()
        ground.alert(text="two payments")
        for text in ("two payments", "corrected"):
            with capture_logs() as logs:
                pages.readiness.get_ready()
            assert [each for each in logs if each["event"] == "not_ready"] == []
            of_server = [[each.get(path) for path in PATHS] for each in (pages, others)]
            ready, not_ready = ([_without_seal(text) for text in found] for found in of_server)
            assert ready == not_ready
            assert text in ready[0]
            ground.night(outcome="revised", cause="late_event", stream_revision=1)
            ground.corrected("alert", "late_event", text="corrected")


def test_a_lake_without_tables_leaves_nothing_to_read(tmp_path: Path) -> None:
    """As before the first archive."""
    with serving(Ground(tmp_path)) as pages, capture_logs() as logs:
        pages.readiness.get_ready()
        pages.get("/alerts")
    assert [each for each in logs if each["event"] == "not_ready"] == []


def test_what_cannot_be_read_is_left_to_whoever_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is read."""
    ground = small_lake(tmp_path)
    ground.alert()

    def fail(_: LakeReader) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(LakeReader, "nights", fail)
    with serving(ground) as pages, capture_logs() as logs:
        pages.readiness.get_ready()
        assert f"a-{named()}" in pages.get(f"/alerts?first={NOON.date()}&last={NOON.date()}")
    assert [each["why"] for each in logs if each["event"] == "not_ready"] == ["RuntimeError('broken')"]


def test_requests_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step begins while one is being answered, and none after the end."""
    monkeypatch.setattr(readiness, "_GIVES_WAY", 300.0)
    with serving(small_lake(tmp_path)) as pages:
        ready = threading.Thread(target=pages.readiness.get_ready, daemon=True)
        with pages.readiness.answering():
            ready.start()
            ready.join(0.2)
            assert ready.is_alive()
            pages.readiness.end()
        ready.join(60)
        assert not ready.is_alive()


def _without_seal(page: str) -> str:
    """A page without what is drawn for each server."""
    return "\n".join(line for line in page.splitlines() if 'name="seal"' not in line)
