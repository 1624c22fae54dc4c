"""The pages in a real browser, with alerts that arrive on a real Kafka."""

import getpass
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from playwright.sync_api import Page, expect

from nightjar.backfill.backtest.report import as_mapping, write_report
from nightjar.contracts.quarantine import quarantine_record
from nightjar.contracts.rule_status import failure_record
from nightjar.kafka.clients import producer
from nightjar.operations.job_watch import STALE
from nightjar.operations.status import read_status
from nightjar.operations.stream_health import read_health
from nightjar.operations.tables import Order, change_table, read_tables
from nightjar.pages.local import local_pages
from nightjar.rules.events import Reason, Rejection
from nightjar.rules.tables import TableType
from nightjar.rules.types import STRING, Kind
from tests.nightjar.test_backtest_report import FOUND as RESULT
from tests.support.alert_records import alert
from tests.support.browser import barriers, chromium, needs_chromium, served
from tests.support.explained_lake import LIMIT, Ground, named, small_lake
from tests.support.reports import word
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow, needs_chromium]

ENTITY = "entity?field=customer_id&value=ann"
HOSTILE = "<img src=x onerror=document.title='run'>"


@contextmanager
def looking(ground: Ground, own: TestTopics, *, dark: bool = False, width: int = 1400) -> Iterator[tuple[Page, str]]:
    """A browser that has opened the address with the token, and the address without it."""
    settings = own.settings.model_copy(update={"lake_dir": str(ground.root)})
    app, access = local_pages(settings, own.streams)
    with served(app) as address, chromium(dark=dark, width=width) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(f"{address}/?token={access.token}")
        assert "token" not in page.url
        yield page, address
        assert problems == []


def send(own: TestTopics, *records: Mapping[str, object], topic: str = "alerts_topic") -> None:
    """Records of a topic, by the name of its setting."""
    with producer(own.settings) as client:
        for record in records:
            client.send(getattr(own.settings, topic), json.dumps(record).encode(), partition=0).get()


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


def test_a_backtest_shows_its_figures_once_it_has_ended(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """On the page that was opened while it ran, and which then reads nothing any more."""
    is_over = threading.Event()

    def evaluated(folder: Path, text: str, *_: object, log: Callable[[str], object], **__: object) -> None:
        (folder / "rules.yaml").write_text(text)
        log("evaluating")
        assert is_over.wait(60)
        (folder / "figures.jsonl").write_text(json.dumps(as_mapping(RESULT), default=str))
        write_report([RESULT], folder / "report.html", "looked at")

    running = patch("nightjar.pages.backtests.run_backtest", evaluated)
    with running, looking(small_lake(tmp_path), kafka_topics.ensure()) as (page, address):
        page.goto(f"{address}/edit")
        for name in ("first", "last"):
            page.locator(f"[name={name}]").fill("2026-01-05")
        page.get_by_role("button", name="Backtest").click()
        status = page.locator("main [role=status]")
        expect(status).to_contain_text("It is evaluated. evaluating")
        is_over.set()
        expect(status).to_have_text("It has ended.")
        expect(page.get_by_role("link", name="report")).to_be_visible()
        assert page.locator("[data-refresh]").get_attribute("data-refresh") == "0"


def test_an_alert_is_labelled_by_keyboard_and_says_so_at_once(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """From the topic, as the archive has not run; a later label overtakes it, and the list has the last one. Likewise
    its group is snoozed, and no longer, which the alert before that stays."""
    ground = small_lake(tmp_path)
    ground.alert()
    with looking(ground, kafka_topics.ensure()) as (page, address):
        page.goto(f"{address}/alerts/{named()}")
        page.locator("#said").get_by_label("why (one line)").fill(HOSTILE)
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
        snooze = page.locator("#snoozed")
        for button, state in (("Snooze this group", "on"), ("End snooze", "ended")):
            snooze.get_by_label("why (one line)").fill(HOSTILE)
            snooze.locator("select[name=since]").select_option("alert")
            snooze.get_by_role("button", name=button).click()
            expect(snooze.locator("li .tag")).to_have_text(state)
            expect(snooze.locator("li")).to_contain_text(HOSTILE)
            expect(snooze).to_contain_text("This alert is snoozed until")
        page.goto(f"{address}/alerts")
        expect(page.locator("#alerts tr")).to_contain_text("legitimate")
        expect(page.locator("#alerts tr")).to_contain_text("snoozed until")


def test_the_stream_is_shown_as_by_the_status_and_read_again(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """Unusable records by reason with an example, failed rules, and the job's own figures, without a reload."""
    own = kafka_topics.ensure()
    stream = own.streams["transactions"]
    for offset, raw in enumerate((HOSTILE.encode(), b"\xff{")):
        rejection = Rejection(Reason.NOT_JSON, HOSTILE)
        _, record = quarantine_record(rejection, stream, partition=0, offset=offset, arrival=0, raw=raw)
        send(own, record, topic="quarantine_topic")
    send(own, failure_record("limit", 2, "t7", HOSTILE)[1], {"no": "answer"}, topic="rule_status_topic")
    with looking(small_lake(tmp_path), own) as (page, address):
        page.goto(f"{address}/stream")
        expect(page.locator(".verdict")).to_have_text("The job has not run yet.")
        unusable = page.locator("tbody tr", has_text="not json")
        expect(unusable).to_contain_text(f"{stream.topic}-0-1")
        expect(unusable).to_contain_text("\\xff{")
        expect(unusable).to_contain_text(HOSTILE)
        expect(page.locator("tbody tr", has_text="limit")).to_contain_text("t7")
        now = time.time_ns() // 1000 + 20 * STALE  # young, however long the test takes
        send(own, word(now - 1_000_000), word(now), topic="job_progress_topic")
        expect(page.locator(".verdict")).to_have_text("running", timeout=20_000)
        expect(page.locator("[data-refresh] tbody tr", has_text="transactions")).to_contain_text("12")
        expect(page.get_by_text("The clock of the job's host is 12.3 s ahead")).to_be_visible()
        status = read_status(own.settings)
        shown = page.locator("[data-refresh]").inner_text()
        for took in status.batches["parts_ms"].values():
            assert f"{took:,.1f}" in shown


def test_examples_of_sensitive_streams_are_hidden(kafka_topics: TestTopics) -> None:
    """And those of streams that nobody declares; what is no record of ours is left out."""
    own = kafka_topics.ensure()
    declared = own.streams["transactions"]
    _, record = quarantine_record(
        Rejection(Reason.NOT_JSON, "it"), declared, partition=0, offset=0, arrival=0, raw=b"ann"
    )
    send(own, record, record | {"stream": "other"}, record | {"offset": "x"}, {}, topic="quarantine_topic")
    hidden = replace(declared, sensitive=frozenset({"customer_id"}))
    for stream, examples in ((declared, ["ann", None]), (hidden, [None, None])):
        health = read_health(own.settings, {"transactions": stream})
        found = sorted(health.unusable, key=lambda each: each.stream, reverse=True)
        assert [(each.stream, each.example) for each in found] == [
            *zip(("transactions", "other"), examples, strict=True)
        ]


def test_a_list_is_changed_by_keyboard_from_a_file_and_by_approval(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """What is sent is there at once; a file is only shown before its import is sent; and nothing in it runs."""
    own = with_lists(kafka_topics).ensure()
    eve = Order(["card-1"], is_set=True, valid_from=None, author="eve", reason=HOSTILE)
    change_table(own.settings, "checked", [eve])
    (tmp_path / "rows.csv").write_text(f'key,reason\n10.0.0.1,\n"{HOSTILE}",{HOSTILE}\n')
    with looking(small_lake(tmp_path / "lake"), own) as (page, address):
        page.goto(f"{address}/tables")
        page.get_by_role("link", name="blocked").click()
        page.get_by_label("keys, one a line").first.fill("10.0.0.1")
        page.keyboard.press("Tab")
        page.keyboard.type("seen twice")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("It is done.")
        expect(page.get_by_role("heading", level=2).first).to_have_text("It is on the list.")
        page.get_by_role("link", name="blocked").click()
        page.get_by_text("Import a list").click()
        page.get_by_label("a file").set_input_files(tmp_path / "rows.csv")
        expect(page.get_by_label("they are")).to_have_value("csv")
        page.locator("form[action$=import]").get_by_label("why").fill("feed")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("dl")).to_contain_text(f"1: {HOSTILE}")
        assert barriers(page) == []
        page.get_by_role("button", name="Import").click()
        expect(page.get_by_role("status")).to_have_text("It is done.")
        page.get_by_role("link", name=HOSTILE).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"blocked: {HOSTILE}")
        page.goto(f"{address}/tables")
        page.get_by_role("link", name="1 waiting").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status")).to_have_text("It is done.")
        assert page.title() == "checked, list · nightjar", "nothing in it ran"
    assert read_tables(own.settings, own.streams).keys("blocked") == ["10.0.0.1", HOSTILE]


def with_lists(own: TestTopics) -> TestTopics:
    """The same, with a list, and one whose changes somebody else approves."""
    lists = {"blocked": STRING, "checked": TableType(Kind.STRING, approved_from=0)}
    return replace(own, streams={name: replace(stream, tables=lists) for name, stream in own.streams.items()})


@pytest.mark.parametrize(("dark", "width"), [(False, 1400), (True, 420)])
def test_every_page_fits_and_can_be_used_by_keyboard(
    tmp_path: Path, kafka_topics: TestTopics, *, dark: bool, width: int
) -> None:
    """None is wider than the window, each has its landmarks and one heading of the first level, and links lead on."""
    ground = small_lake(tmp_path)
    ground.alert(text="x" * 300)
    ground.night(outcome="revised", cause="late_event", stream_revision=1)
    ground.corrected("alert", "late_event", text="three payments")
    own = with_lists(kafka_topics).ensure()
    send(own, LIMIT, topic="rules_topic")
    for table, author in (("blocked", getpass.getuser()), ("checked", getpass.getuser()), ("checked", "x" * 300)):
        order = Order(["x" * 200, "y"], is_set=True, valid_from=None, author=author, reason="z" * 300)
        change_table(own.settings, table, [order])
    with looking(ground, own, dark=dark, width=width) as (page, address):
        for path in (
            "alerts",
            f"alerts/{named()}",
            "nights",
            "nights/2026-01-05",
            "rules",
            "rules/limit",
            "rules/limit/edit",
            "edit",
            "stream",
            ENTITY,
            "tables",
            "tables/blocked",
            "tables/blocked?key=y",
            "tables/checked",
        ):
            page.goto(f"{address}/{path}")
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), path
            for landmark in ("main", "nav[aria-label='Pages']", "h1"):
                assert page.locator(landmark).count() == 1, (path, landmark)
            unnamed = page.locator(
                "svg:not([aria-label]), input:not(label input, [type=hidden]), select:not(label select), "
                "textarea:not(label textarea, label[for=text] + div textarea)"
            )
            assert unnamed.count() == 0, path
            assert barriers(page) == [], path
        page.goto(f"{address}/alerts")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.get_by_role("link", name="Nights").focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="2026-01-05").click()
        page.get_by_role("link", name="limit").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("limit")
