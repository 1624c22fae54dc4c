"""The pages in a real browser, with alerts that arrive on a real Kafka."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from nightjar.configuration.backfill import backfill_config
from nightjar.kafka.clients import producer
from nightjar.operations.labelling import send_labels
from nightjar.operations.unarchived import OnKafka
from nightjar.pages.application import application
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.live import LiveAlerts
from nightjar.pages.serving import LocalAccess
from tests.support.alert_records import alert
from tests.support.browser import chromium, needs_chromium, served
from tests.support.explained_lake import Ground, named, small_lake
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow, needs_chromium]

HOSTILE = "<img src=x onerror=document.title='run'>"


@contextmanager
def looking(ground: Ground, own: TestTopics, *, dark: bool = False, width: int = 1400) -> Iterator[tuple[Page, str]]:
    """A browser that has opened the address with the token, and the address without it."""
    settings = own.settings.model_copy(update={"lake_dir": str(ground.root)})
    live, access = LiveAlerts(settings, own.streams), LocalAccess()
    reader = LakeReader(backfill_config(settings, own.streams, spark=False), lambda: OnKafka(settings))
    app = application(
        lambda: reader,
        lambda: live,
        access.guard,
        actor=access.actor,
        send=lambda label: send_labels(settings, [label]),
        links={},
    )
    access.protect(app)
    with served(app) as address, chromium(dark=dark, width=width) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(f"{address}/?token={access.token}")
        assert "token" not in page.url
        yield page, address
        assert problems == []


def send(own: TestTopics, *records: dict[str, object]) -> None:
    """Records of the alerts topic."""
    with producer(own.settings) as client:
        for record in records:
            client.send(own.settings.alerts_topic, json.dumps(record).encode(), partition=0).get()


def test_alerts_appear_as_they_arrive(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """With their text as text; a retraction takes the place of its alert; what is no alert is left out."""
    own = kafka_topics.ensure()
    with looking(small_lake(tmp_path), own) as (page, address):
        expect(page.locator("#live")).to_contain_text("Live: new alerts appear here")
        first = alert("e1", text=HOSTILE)
        send(own, first, {"no": "alert"}, alert("e2", text="second"))
        rows = page.locator("#alerts tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("second")
        expect(rows.nth(1)).to_contain_text(HOSTILE)
        send(own, first | {"revision": 2, "kind": "retraction"})
        expect(rows.first).to_contain_text("retracted")
        expect(rows).to_have_count(2)
        expect(page.locator("#live")).to_contain_text("3 arrived")
        assert page.title().startswith("Alerts"), "nothing in it ran"
        page.goto(f"{address}/alerts?rule=other")
        expect(page.locator("#live")).to_contain_text("Live: new alerts appear here")
        send(own, alert("e3", rule_id="other", text="third"), alert("e4"))
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("third")


def test_an_alert_is_labelled_by_keyboard_and_says_so_at_once(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """From the topic, as the archive has not run; a later label overtakes it, and the list has the last one."""
    ground = small_lake(tmp_path)
    ground.alert()
    with looking(ground, kafka_topics.ensure()) as (page, address):
        page.goto(f"{address}/alerts/{named()}")
        page.get_by_label("why (one line)").fill(HOSTILE)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        said = page.locator("#said li")
        expect(said).to_have_count(1)
        expect(said).to_contain_text("fraud by")
        expect(said).to_contain_text(HOSTILE)
        page.get_by_role("button", name="Legitimate").click()
        expect(said).to_have_count(2)
        expect(said.first).to_contain_text("legitimate by")
        expect(said.nth(1)).to_contain_text("overtaken")
        page.goto(f"{address}/alerts")
        expect(page.locator("#alerts tr")).to_contain_text("legitimate")


@pytest.mark.parametrize(("dark", "width"), [(False, 1400), (True, 420)])
def test_every_page_fits_and_can_be_used_by_keyboard(
    tmp_path: Path, kafka_topics: TestTopics, *, dark: bool, width: int
) -> None:
    """None is wider than the window, each has its landmarks and one heading of the first level, and links lead on."""
    ground = small_lake(tmp_path)
    ground.alert(text="x" * 300)
    ground.night(outcome="revised", cause="late_event", stream_revision=1)
    ground.corrected("alert", "late_event", text="three payments")
    own = kafka_topics.ensure()
    with looking(ground, own, dark=dark, width=width) as (page, address):
        for path in ("alerts", f"alerts/{named()}", "nights", "nights/2026-01-05", "rules", "rules/limit"):
            page.goto(f"{address}/{path}")
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), path
            for landmark in ("main", "nav[aria-label='Pages']", "h1"):
                assert page.locator(landmark).count() == 1, (path, landmark)
            unnamed = page.locator(
                "svg:not([aria-label]), input:not(label input, [type=hidden]), select:not(label select)"
            )
            assert unnamed.count() == 0, path
        page.goto(f"{address}/alerts")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.get_by_role("link", name="Nights").focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="2026-01-05").click()
        page.get_by_role("link", name="limit").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("limit")
