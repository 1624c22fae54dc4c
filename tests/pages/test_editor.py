"""The pages that write, publish and approve rules: what they say of a text, who may do what, and that nothing runs."""

import html
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import httpx
import polars as pl
import pytest
from playwright.sync_api import expect

from nightjar.backfill.backtest.comparison import Curve, Point, Quality
from nightjar.backfill.backtest.report import as_mapping, write_report
from nightjar.kafka.clients import KafkaError
from nightjar.lake.tables import LABELS
from nightjar.pages.acting import Acting
from nightjar.pages.editor import LONGEST, example
from nightjar.rules.display import yaml_text
from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule, parse_rules
from nightjar.rules.streams import load_streams
from tests.nightjar.test_backtest_report import FOUND as RESULT
from tests.support.browser import barriers, chromium, needs_chromium
from tests.support.explained_lake import DAY, LIMIT, Ground, small_lake
from tests.support.payments import NOON, fill
from tests.support.served_pages import Pages, RulesTopic, serving

HOSTILE = "<script>alert(1)</script>&\"'"
STREAMS = load_streams()
ANN, BOB, VIEWER = Acting("ann", "s"), Acting("bob", "s"), Acting(None, "s")
TEXT = yaml_text(parse_rule(LIMIT, STREAMS))


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    """Of Ann, over the rule `limit` and its two payments."""
    with serving(small_lake(tmp_path), acting=ANN) as found:
        yield found


@contextmanager
def entered(pages: Pages) -> Iterator[httpx.Client]:
    """A client that has shown the token."""
    with pages.stranger() as client:
        client.get(f"/?token={pages.access.token}")
        yield client


def sent(pages: Pages, text: str, by: Acting = ANN, code: int = 200, path: str = "/edit", **form: str) -> str:
    """The answer to the form of an editor; of one that leads on, where to."""
    with entered(pages) as client:
        answer = client.post(path, data={"seal": by.seal, "text": text, **form})
    assert answer.status_code == code, answer.text
    return answer.headers["location"] if code == 303 else answer.text


def notes(page: str, level: str = "error") -> list[tuple[int, str]]:
    """The lines and texts of a page's errors or warnings."""
    found = re.search(rf'<ul class="notes {level}">(.*?)</ul>', page, re.DOTALL)
    rows = re.findall(
        r'data-line="(\d+)"><span class="line">[^<]*</span> <span>(.*?)</span>', found[1] if found else ""
    )
    return [(int(line), html.unescape(text)) for line, text in rows]


def test_a_published_rule_is_edited_and_the_changes_are_shown(pages: Pages) -> None:
    """Beside its version in force; unchanged it says so."""
    page = pages.get("/rules/limit/edit")
    assert html.escape(TEXT, quote=False).splitlines()[0] in page
    assert "as version 1, unchanged" in page
    assert "No error." in page
    page = sent(pages, TEXT.replace("n >= 2", "n >= 3"), rule="limit")
    assert "changes to version 1" in page
    assert "+when: n &gt;= 3" in page
    assert "-when: n &gt;= 2" in page
    assert "a new rule" in sent(pages, TEXT.replace("limit", "other"))
    assert pages.rules.sent == [], "nothing is published by a check"
    assert 'href="../rules/limit/edit"' in pages.get("/rules/limit")
    assert 'href="./edit"' in pages.get("/rules")
    assert "Rule other was never published" in pages.get("/rules/other/edit", 404)


def test_a_backtest_is_started_and_says_how_it_ended(pages: Pages, tmp_path: Path) -> None:
    """The command's own words where it fails; one at a time; who may only look starts none."""
    for form, why in (
        ({"first": "", "last": ""}, "Give the first and the last one"),
        ({"first": "2026-01-06"}, "Give a last day from the first on"),
        ({"first": "2025-01-05"}, "at most 92 days"),
        ({"first": "soon"}, "is not a valid date"),
        ({"threshold": "m"}, "m is not compared with a constant"),
    ):
        page = sent(pages, TEXT, act="backtest", code=400, **{"first": "2026-01-05", "last": "2026-01-05", **form})
        assert why in html.unescape(page)
    days = {"first": "2026-01-05", "last": "2026-01-05", "act": "backtest"}
    assert "What <code>nightjar rules check</code> says" in sent(pages, TEXT + "severity: x", **days)
    label = {"stream": "transactions", "known_at": NOON, "partition": 0, "arrival_time": NOON, "arrival_date": DAY}
    said = (("t1", "fraud"), ("t1", "unsure"), ("t2", "legitimate"), ("t2", "fraud"))
    rows = (label | {"event_id": event, "label": what, "offset": at} for at, (event, what) in enumerate(said))
    fill(pages.ground.root, LABELS, *rows)
    given = {"NIGHTJAR_LAKE_DIR": str(tmp_path / "none"), "NIGHTJAR_DATA_DIR": str(tmp_path / "data")}
    with patch.dict(os.environ, given):
        there = sent(pages, TEXT, code=303, **days)
        assert "is running already" in sent(pages, TEXT, code=400, **days)
        deadline = time.monotonic() + 60
        while "It failed." not in (page := pages.get(f"/{there}")):
            assert "It is evaluated." in page
            assert 'data-refresh="3"' in page
            assert time.monotonic() < deadline, page
            time.sleep(0.2)
    assert "there is no lake" in html.unescape(page)
    assert pl.read_parquet(pages.ground.root / "data" / there / "labels.parquet").rows() == [("t2", "fraud")]
    assert "when: n &gt;= 2" in page
    for run in ("none", "20260101T000000-abcdef", "%2e%2e"):
        pages.get(f"/backtests/{run}", 404)
    pages.get(f"/{there}/report", 404)


def test_what_a_backtest_found_is_shown_with_its_curve(pages: Pages) -> None:
    """Values are text; the report stands on its own."""
    labelled = Curve("n", ">=", 2.0, [Point(9, 1, 1), Point(2, 5, 2)], {})
    found = replace(RESULT, curve=labelled, quality=Quality(4, 2, 5, {HOSTILE: (2, 4)}))
    folder = pages.ground.root / "data" / "backtests" / "20260105T120000-abcdef"
    folder.mkdir(parents=True)
    (folder / "figures.jsonl").write_text(json.dumps(as_mapping(found), default=str))
    (folder / "rules.yaml").write_text(TEXT + f"# {HOSTILE}")
    path = f"/backtests/{folder.name}"
    assert "were ended before" in pages.get(path), "without a report it is not whole"
    write_report([found], folder / "report.html", HOSTILE)
    page = pages.get(path)
    assert "It has ended." in page
    assert "2 of the alerts (40.0%); in all 4 events of these days are labelled as fraud" in page
    assert '<polyline class="curve" points="' in page
    assert re.search(r"<title>n &gt;= 9: 1 alerts, 1 of them labelled as fraud</title>", page)
    assert '<td data-title="share" class="number">100.0%</td>' in page
    assert "<script>alert" not in page
    with entered(pages) as client:
        report = client.get(f"{path}/report")
    assert "<h1>Backtest</h1>" in report.text
    assert "<script>alert" not in report.text
    assert "script-src" not in report.headers["content-security-policy"]


def test_errors_are_those_of_the_command_at_their_lines(pages: Pages) -> None:
    """Of every rule of the text, in the order of lines; of what is no YAML, too."""
    bad = TEXT.replace("customer_id", "costumer_id").replace("n >= 2", "n >=\nscore: x")
    with pytest.raises(RuleError) as refusal:
        parse_rules(bad, STREAMS, where="the text")
    said = sorted(str(problem).partition("\n")[0] for problem in refusal.value.problems)
    found = notes(sent(pages, bad))
    assert len(found) >= 3
    assert sorted(text for _, text in found) == said
    lines = bad.splitlines()
    for line, text in found:
        assert lines[line - 1].startswith(re.split(r"[ :.]", text.removeprefix("rule limit, "))[0]), (line, text)
    ((line, text),) = notes(sent(pages, "id: x\nwhen: [\n\n}"))
    assert (line, "is not YAML" in text) == (4, True)
    ((line, text),) = notes(sent(pages, "id: x\n" + "[" * 30_000))
    assert "is not YAML" in text
    ((line, text),) = notes(sent(pages, "id: x\nwhen: " + "[" * 30 + "]" * 30))
    assert "nested too deep" in text
    doubtful = sent(pages, TEXT + "where: amount > 5 AND amount < 4\n")
    assert "No error, and 1 warning." in doubtful
    assert [line for line, _ in notes(doubtful, "warning")] == [len(TEXT.splitlines()) + 1]


def test_a_rule_that_would_retain_too_much_is_refused_with_the_figures(tmp_path: Path) -> None:
    """By the events per day of the lake, as by the command."""
    with serving(small_lake(tmp_path), acting=ANN) as pages:
        assert re.search(r"limit retains about \d+ events?, of 2 a day", pages.get("/rules/limit/edit"))


def test_who_may_only_look_writes_no_rule(tmp_path: Path) -> None:
    """No page leads there, and the server refuses, as it does forms of other pages, and too long ones."""
    with serving(small_lake(tmp_path), acting=VIEWER) as pages:
        assert "/edit" not in pages.get("/rules") + pages.get("/rules/limit")
        for path in ("/edit", "/rules/limit/edit"):
            assert "Your role may look" in pages.get(path, 403)
        assert "Your role may look" in sent(pages, TEXT, VIEWER, 403)
    with serving(small_lake(tmp_path / "other"), acting=ANN) as pages:
        assert "open the page again" in sent(pages, TEXT, BOB, 403)
        for length in (LONGEST + 1, 2 * 131_072):
            assert "`nightjar rules check` takes them" in sent(pages, "x" * length, code=413)
        with pages.stranger() as client:
            for path in ("/edit", "/edit/names", "/rules/limit/edit"):
                assert client.get(path).status_code == 401
            assert client.post("/edit", data={"seal": ANN.seal, "text": TEXT}).status_code == 401


def test_nothing_in_a_text_is_markup(pages: Pages) -> None:
    """Neither in the text, nor in its errors, nor in what others have published."""
    named = LIMIT | {"description": HOSTILE, "author": HOSTILE, "id": "named"}
    pages.rules.send([named])
    texts = (f"id: '{HOSTILE}'", HOSTILE, f"</textarea>{HOSTILE}", yaml_text(parse_rule(named, STREAMS)))
    shown = [sent(pages, text, rule=HOSTILE) for text in texts] + [pages.get("/rules/named/edit")]
    for page in shown:
        assert "<script>alert" not in page
        assert page.count("</textarea>") == 1
        assert "&lt;script&gt;alert" in page


def test_the_example_of_every_stream_is_a_rule(tmp_path: Path) -> None:
    """It has no error, so that the page for a new rule begins without any."""
    for stream in STREAMS.values():
        parse_rules(example({stream.name: stream}), STREAMS, where="the example")
    with serving(Ground(tmp_path), acting=ANN) as pages:
        assert "No error." in pages.get("/edit")


def test_a_form_writes_a_simple_rule(pages: Pages) -> None:
    """As its text, which is then checked like any other."""
    asked = {"id": "spent", "group": "transactions.customer_id", "function": "sum", "field": "transactions.amount"}
    asked |= {"over": "2h", "operator": ">", "number": "500"}
    page = html.unescape(pages.get(f"/edit?{urlencode(asked)}"))
    for line in ("id: spent", "group_by: [customer_id]", "n: {sum: amount, over: 2h}", "when: n > 500", "No error."):
        assert line in page
    count = asked | {"function": "count", "field": ""}
    assert "n: {count: '*', over: 2h}" in html.unescape(pages.get(f"/edit?{urlencode(count)}"))
    for name in asked:
        page = pages.get(f"/edit?{urlencode(asked | {name: HOSTILE})}")
        assert "<script>alert" not in page
        assert page.count("</textarea>") == 1
    assert "wrong in number" in pages.get(f"/edit?{urlencode(asked | {'number': '1' * 201})}", 400)


def test_what_is_completed_is_the_schema_and_the_declared_streams(pages: Pages) -> None:
    """Of measures as they are written."""
    found: dict[str, Any] = json.loads(pages.get("/edit/names"))
    assert {"count", "over", "where"} <= found["parts"]["Measure"]["properties"].keys()
    assert found["parts"]["Severity"]["enum"] == ["low", "medium", "high", "critical"]
    assert found["streams"]["transactions"]["fields"]["amount"].startswith("decimal")
    assert found["rules"] == ["limit"]


def test_a_version_is_published_in_the_name_of_its_user(pages: Pages) -> None:
    """Whatever the text says of its author; the page of the rule says what became of it, and has it at once."""
    text = TEXT.replace("n >= 2", "n >= 3") + "author: eve\nreason: none of this\n"
    form = {"act": "publish", "rule": "limit", "seen": "1", "reason": " fewer alerts "}
    assert sent(pages, text, code=303, **form) == "rules/limit?sent=2"
    (message,) = pages.rules.sent
    assert (message["author"], message["reason"], message["when"]) == ("ann", "fewer alerts", "n >= 3")
    page = pages.get("/rules/limit?sent=2")
    assert "Version 2 is accepted." in page
    assert "fewer alerts" in page
    assert "Version 9 has had no effect" in pages.get("/rules/limit?sent=9")
    assert sent(pages, TEXT.replace("limit", "other"), code=303, act="publish", reason="new") == "rules/other?sent=1"
    assert 'href="./rules/other"' in pages.get("/rules")


@pytest.mark.parametrize(
    ("text", "form", "code", "why"),
    [
        (TEXT.replace("2", "3"), {"reason": " "}, 400, "reason: is missing"),
        (TEXT.replace("2", "3"), {"reason": "x" * 501}, 400, "at most 500"),
        (TEXT.replace("2", "3"), {"reason": "a\x07b"}, 400, "has control characters"),
        (TEXT, {}, 400, "it is as version 1 has it"),
        (TEXT.replace("transactions", "logins"), {}, 400, "A rule keeps its stream"),
        (TEXT.replace("2", "3"), {"seen": "0"}, 409, "you have not seen version 1 of limit"),
        (TEXT.replace("2", "3"), {"rule": ""}, 409, "you have not seen version 1 of limit"),
        (TEXT.replace("2", "3"), {"seen": "x"}, 409, "you have not seen version 1 of limit"),
        (f"{TEXT}---\n{TEXT.replace('limit', 'other')}", {}, 400, "has 2 rules"),
        (TEXT.replace("n >= 2", "m >= 2"), {}, 200, "unknown name"),
        (TEXT.replace("2", "3"), {"seal": BOB.seal}, 403, "open the page again"),
    ],
)
def test_what_cannot_be_published_is_said_and_kept(
    pages: Pages, text: str, form: dict[str, str], code: int, why: str
) -> None:
    """Nothing is sent, and the text is there to be changed."""
    good = {"act": "publish", "rule": "limit", "seen": "1", "reason": "fewer"}
    page = sent(pages, text, code=code, **good | form)
    assert why in html.unescape(page)
    assert pages.rules.sent == []
    assert code == 403 or html.escape(text.splitlines()[-1], quote=False) in page
    if code == 409:
        seen, rule = (re.findall(rf'name="{name}" value="([^"]*)"', page)[0] for name in ("seen", "rule"))
        assert sent(pages, text, code=303, **good | {"seen": seen, "rule": rule}) == "rules/limit?sent=2"


def test_somebody_else_approves_a_version(tmp_path: Path) -> None:
    """With a reason; the author cannot, neither by the page nor without it; who may only look sees what waits."""
    ground, path = small_lake(tmp_path), "/rules/limit/approve"
    text = TEXT.replace("n >= 2", "n >= 3") + "effective: 2026-01-01T00:00:00Z\n"
    with serving(ground, acting=ANN, approvals=1) as pages:
        assert "Somebody else has to approve it" in pages.get("/edit")
        form = {"act": "publish", "rule": "limit", "seen": "1", "reason": HOSTILE}
        assert sent(pages, text, code=303, **form) == "rules/limit?sent=2"
        page = pages.get("/rules/limit?sent=2")
        assert "waits until somebody else approves it" in page
        assert "Approve" not in page
        assert "ann" in sent(pages, "", path=path, code=400, version="2", reason="mine")
        assert "waits for approval; publishing another one overtakes it" in pages.get("/rules/limit/edit")
        assert "when: n &gt;= 2</textarea>" in pages.get("/rules/limit/edit?version=1").replace("\n", "")
        assert "has no version 7" in pages.get("/rules/limit/edit?version=7", 404)
    with serving(ground, acting=VIEWER, approvals=1) as pages:
        page = pages.get("/rules")
        assert 'href="./rules/limit#waiting"' in page
        assert "changed line" in page
        assert "+when: n &gt;= 3" in pages.get("/rules/limit")
        assert "<form" not in pages.get("/rules/limit")
        assert "Your role may look" in sent(pages, "", VIEWER, 403, path, version="2", reason="good")
    with serving(ground, acting=BOB, approvals=1) as pages:
        page = pages.get("/rules/limit")
        assert "which is past: it applies from its approval on" in page
        assert "<script>alert" not in page + pages.get("/rules")
        for wrong in ({"version": "x"}, {"version": "7"}, {"reason": ""}):
            sent(pages, "", BOB, 400, path, **{"version": "2", "reason": "good"} | wrong)
        assert sent(pages, "", BOB, 303, path, version="2", reason="looks right") == "../limit?sent=2"
        page = pages.get("/rules/limit?sent=2")
        assert "Version 2 is accepted." in page
        assert "approved by bob (looks right)" in page
        assert "Waiting for approval" not in pages.get("/rules")
        with entered(pages) as client:
            assert client.get(path).headers["location"] == "../limit"


def test_a_version_is_declined_with_a_reason(tmp_path: Path) -> None:
    """By somebody else or its author; who may only look cannot, neither by the page nor without it."""
    ground, path = small_lake(tmp_path), "/rules/limit/decline"
    with serving(ground, acting=ANN, approvals=1) as pages:
        form = {"act": "publish", "rule": "limit", "seen": "1", "reason": "fewer"}
        sent(pages, TEXT.replace("n >= 2", "n >= 3"), code=303, **form)
        page = pages.get("/rules/limit")
        assert "Decline" in page
        assert "<button>Approve" not in page
    with serving(ground, acting=VIEWER, approvals=1) as pages:
        assert "Your role may look" in sent(pages, "", VIEWER, 403, path, version="2", reason="no")
    with serving(ground, acting=BOB, approvals=1) as pages:
        assert 'formaction="../rules/limit/decline"' in pages.get("/rules/limit")
        for wrong in ({"version": "x"}, {"version": "7"}, {"version": "1"}, {"reason": " "}):
            sent(pages, "", BOB, 400, path, **{"version": "2", "reason": "no"} | wrong)
        assert sent(pages, "", BOB, 403, path, version="2", reason="no", seal=ANN.seal)
        assert pages.rules.sent == []
        assert sent(pages, "", BOB, 303, path, version="2", reason=HOSTILE) == "../limit?sent=2"
        page = pages.get("/rules/limit?sent=2")
        assert "Version 2 is declined, and never takes effect." in page
        assert "Version 2, declined" in page
        assert f"by bob ({HOSTILE})" in html.unescape(page)
        assert "<script>alert" not in page
        assert 'id="waiting"' not in page + pages.get("/rules")
        assert "declined it" in html.unescape(
            sent(pages, "", BOB, 400, "/rules/limit/approve", version="2", reason="ok")
        )
        with entered(pages) as client:
            assert client.get(path).headers["location"] == "../limit"
    with serving(ground, acting=ANN, approvals=1) as pages:
        form |= {"seen": "2", "reason": "once more"}
        assert sent(pages, TEXT.replace("n >= 2", "n >= 3"), code=303, **form) == "rules/limit?sent=3"


def test_a_rule_is_tried_on_the_newest_events(tmp_path: Path) -> None:
    """By the function of the command; groups of sensitive fields are masked, and errors come first."""
    declared = STREAMS["transactions"]
    hidden = {**STREAMS, "transactions": replace(declared, sensitive=frozenset({"customer_id"}))}
    for streams, group in ((STREAMS, '{"customer_id":"ann"}'), (hidden, '{"customer_id":"•••"}')):
        ground = small_lake(tmp_path / ("hidden" if streams is hidden else "shown"))
        ground.publish(LIMIT | {"id": "second"})
        text = TEXT + f"description: '{HOSTILE.replace(chr(39), '')} {{n}}'\n"
        with serving(ground, streams, ANN) as pages:
            page = sent(pages, text, act="try")
            assert "limit: 1 alert on the newest 2 events." in page
            assert "1 of them where second alerts too, which has 1." in page
            assert group in html.unescape(page)
            assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34; 2" in page
            assert "<script>alert" not in page
            past = sent(pages, text.replace("n >= 2", "n > 0") + "effective: 2020-01-01T00:00:00Z\n", act="try")
            assert "limit applies to the past, from 2020-01-01 00:00 UTC on" in past
            assert "limit is not evaluated" in sent(pages, TEXT.replace("active", "paused"), act="try")
            assert "once it has no error" in sent(pages, "id: x", act="try")


def test_without_kafka_rules_are_those_of_the_archive_and_nothing_is_lost(tmp_path: Path) -> None:
    """It is asked once, and not again for a while, but for what cannot do without."""
    asked = KafkaError("no broker responds", where="Kafka at x:9")
    with (
        patch.object(RulesTopic, "published", side_effect=asked) as published,
        serving(small_lake(tmp_path), acting=ANN) as pages,
    ):
        for path in ("/rules", "/rules/limit"):
            assert "the archive has brought to the lake" in pages.get(path)
        assert "beside what the archive has" in pages.get("/rules/limit/edit")
        assert published.call_count == 1
        page = sent(pages, TEXT.replace("2", "3"), code=503, act="publish", rule="limit", seen="1", reason="fewer")
        assert "no broker responds" in page
        assert "n &gt;= 3" in page
        assert "no broker responds" in sent(pages, "", code=503, path="/rules/limit/approve", version="1", reason="x")


@needs_chromium
@pytest.mark.slow
def test_a_rule_is_written_by_keyboard(pages: Pages) -> None:
    """Names are completed, lines indented and errors shown as one types, and the keyboard leads on; nothing runs."""
    with chromium() as page:
        said: list[str] = []
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: said.append(line.text))
        page.goto(f"{pages.address}/?token={pages.access.token}")
        page.goto(f"{pages.address}/rules/limit/edit")
        text, verdict = page.get_by_label("the rule, as YAML"), page.get_by_role("status")
        text.press("Control+End")
        with page.expect_response("**/edit"):
            text.press_sequentially("sev")
        expect(page.get_by_role("option")).to_have_count(1)
        text.press("Enter")
        text.press_sequentially("hi")
        text.press("Enter")
        expect(verdict).to_have_text("No error.")
        expect(page.locator(".added")).to_have_text(["+severity: high"])
        text.press("Enter")
        text.press_sequentially("measures:")
        text.press("Enter")
        text.press("Tab")
        text.press_sequentially("spent: {su")
        text.press("Tab")
        text.press_sequentially("am")
        expect(page.get_by_role("option", name="amount")).to_have_attribute("aria-selected", "true")
        text.press("ArrowDown")
        text.press("Enter")
        text.press_sequentially(f", over: 1h}} # {HOSTILE}")
        assert text.input_value().endswith(f"measures:\n  spent: {{sum: amount, over: 1h}} # {HOSTILE}")
        expect(verdict).to_have_text("1 error.")
        expect(page.locator("#details li")).to_contain_text("key 'measures' is repeated")
        text.fill(TEXT.replace("n >= 2", "m >= 2"))
        expect(page.locator("#details li")).to_contain_text("unknown name 'm'")
        assert barriers(page) == []
        page.get_by_role("button", name="line 7").press("Enter")
        assert text.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)") == "when: m >= 2"
        text.press("Escape")
        text.press("Tab")
        expect(page.get_by_role("button", name="Check")).to_be_focused()
        with page.expect_response("**/edit"):
            page.keyboard.press("Enter")
        text.fill(TEXT.replace("n >= 2", "n >= 1"))
        page.get_by_role("button", name="Try").press("Enter")
        expect(page.locator("#trial")).to_contain_text("limit: 2 alerts on the newest 2 events")
        assert barriers(page) == []
        page.get_by_label("why").fill(HOSTILE)
        page.get_by_role("button", name="Publish").press("Enter")
        expect(page.get_by_role("status")).to_have_text("Version 2 is accepted.")
        assert said == []
