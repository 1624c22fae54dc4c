"""The pages over a lake of few rows: what they show, to whom, and that nothing in them runs."""

import csv
import getpass
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from nightjar.backfill.publish.precision import Precision
from nightjar.backfill.publish.snoozed import Snoozed
from nightjar.contracts.labels import LABEL, message
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.contracts.snoozes import message as snooze_message
from nightjar.contracts.snoozes import snooze_record
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, LABELS, RESTRICTIONS, RUNS, SNOOZES
from nightjar.pages import drawing
from nightjar.pages.acting import Acting
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import from_microseconds, microseconds
from tests.support.explained_lake import DAY, GROUP, LIMIT, MINUTES, PUBLISHED, Ground, named, small_lake
from tests.support.payments import NOON, add, days, fill, payment
from tests.support.served_pages import Pages, serving

FORM = "application/x-www-form-urlencoded"
ENTITY = "/entity?field=customer_id&value=ann"
ANNS = snooze_record(
    rule_id="limit",
    group=GROUP,
    since=microseconds(NOON),
    until=microseconds(NOON + days(9)),
    author="kim",
    reason="travels",
    now=microseconds(NOON),
)
HOSTILE = "<script>alert(1)</script>&\"'"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    """Over two payments of Ann, the rule, and no alert."""
    with serving(small_lake(tmp_path)) as found:
        yield found


def test_nobody_without_the_token_sees_a_page(pages: Pages) -> None:
    """Neither with a wrong one nor by another host's name; the token is exchanged for a cookie of this port."""
    client = pages.stranger()
    for address in (
        "/",
        "/alerts",
        "/alerts.csv",
        "/alerts/x",
        "/live",
        "/nights",
        "/nights/2026-01-05",
        "/rules",
        "/stream",
        "/tables",
        "/tables/blocked?key=x",
        "/tables/blocked/import",
    ):
        for given in ("", "?token=wrong"):
            answer = client.get(address + given)
            assert answer.status_code == 401, address
            assert "holds a token" in answer.text
    assert client.get("/assets/application.css").status_code == 200
    assert client.get("/assets/../lake_reader.py").status_code == 404
    assert client.get("/alerts", headers={"Host": "pages.example"}).status_code == 400
    entered = client.get(f"/alerts?rule=limit&token={pages.access.token}")
    assert (entered.status_code, entered.headers["location"]) == (303, f"{pages.address}/alerts?rule=limit")
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert "SameSite=strict" in entered.headers["set-cookie"]
    assert client.get("/alerts").status_code == 200
    policy = client.get("/alerts").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_an_empty_lake_says_what_will_be_there(tmp_path: Path) -> None:
    """Each page, and no alert that does not exist."""
    with serving(Ground(tmp_path)) as pages:
        assert "The lake has no such alert" in pages.get("/alerts")
        assert "No night has run yet" in pages.get("/nights")
        assert "No rule is published yet" in pages.get("/rules")
        assert "there is no such alert" in pages.get("/alerts/none", 404)
        assert "No run has judged" in pages.get("/nights/2026-01-05", 404)
        assert "Rule limits was never published" in pages.get("/rules/limits", 404)
        assert "no broker responds" in pages.get("/stream", 503)
        assert "No list is declared" in pages.get("/tables")
        assert "no table is declared" in pages.get("/tables/blocked", 404)
        assert pages.get("/alerts.csv").startswith("event_time,")


def test_alerts_are_shown_with_what_became_of_them(pages: Pages) -> None:
    """The latest revision, what the night found, and as much as the filter lets through."""
    ground = pages.ground
    ground.alert(text="two payments")
    ground.night(outcome="matched", stream_revision=1)
    page = pages.get("/alerts")
    assert "two payments" in page
    assert "confirmed" in page
    ground.corrected("retraction", "late_event")
    page = pages.get("/alerts")
    assert re.search(r"<del>.*</del>", page)
    assert "late event" in page
    for wanted in (
        "state=retracted",
        "cause=late_event",
        "rule=limit",
        "group=ANN",
        "severity=medium",
        "muted=without",
    ):
        assert f"a-{named()}" in pages.get(f"/alerts?{wanted}"), wanted
    for unwanted in ("state=holds", "rule=other", "group=bob", "severity=low", "muted=only", "overflow=only", "text=x"):
        assert f"a-{named()}" not in pages.get(f"/alerts?{unwanted}"), unwanted
    assert f"a-{named()}" not in pages.get("/alerts?first=2026-01-06&last=2026-01-07")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/alerts?first=yesterday", "is not a valid date"),
        ("/alerts?first=2026-01-06&last=2026-01-05", "Give a last day from the first on"),
        ("/alerts?first=2000-01-01&last=2026-01-05", "at most 92 days"),
        ("/alerts?page=x", "The address is wrong in page"),
        ("/nights/x", "The address is wrong in day"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(pages: Pages, address: str, why: str) -> None:
    """In words, as a page."""
    assert why in pages.get(address, 400)


def test_pages_of_alerts_hold_fifty_each(pages: Pages) -> None:
    """The latest events first; a page beyond the last is the last."""
    row = {"rule_id": "limit", "rule_version": 1, "rule_state": "active", "stream": "transactions", "group": GROUP}
    rows = [
        row
        | {
            "alert_id": f"{number:032x}",
            "revision": 1,
            "kind": "alert",
            "event_id": f"e{number}",
            "event_time": NOON + number * MINUTES,
            "measures": "{}",
            "severity": "low",
            "text": f"number {number}.",
            "muted": False,
            "source": "stream",
            "emitted_at": NOON,
            "arrival_date": DAY,
        }
        for number in range(101)
    ]
    fill(pages.ground.root, ALERTS, *rows)
    assert [pages.get(f"/alerts?page={page}").count('<tr id="a-') for page in (1, 3, 9)] == [50, 1, 1]
    first = pages.get("/alerts")
    assert "number 100." in first
    assert "number 50." not in first
    assert len(list(csv.reader(io.StringIO(pages.get("/alerts.csv"))))) == 102
    with patch("nightjar.pages.application.MOST_DOWNLOADED", 100):
        assert "101 alerts are too many" in pages.get("/alerts.csv", 400)


def test_values_are_text_wherever_they_stand(pages: Pages) -> None:
    """In pages nothing of them is markup, and in a spreadsheet nothing is a formula."""
    pages.ground.alert(text=HOSTILE + "=1")
    pages.ground.alert(alert_id="f" * 32, event_id="=cmd()", text="=cmd()")
    for page in (pages.get("/alerts"), pages.get(f"/alerts/{named()}"), pages.get("/alerts?text=%3Cscript%3E")):
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in pages.get("/alerts/%3Cscript%3Ealert(1)", 404)
    rows = list(csv.DictReader(io.StringIO(pages.get("/alerts.csv"))))
    assert {row["text"] for row in rows} == {HOSTILE + "=1", "'=cmd()"}
    assert "'=cmd()" in {row["event_id"] for row in rows}


def test_an_alert_that_an_allow_rule_silences_says_so(pages: Pages) -> None:
    """In the list, where it counts as muted; the rule's id, as all of a record, is text."""
    pages.ground.alert(muted=True, measures=json.dumps({"allowed_by": "<b>trust"}))
    for page in (pages.get("/alerts"), pages.get("/alerts?muted=only")):
        assert '<span class="tag">allowed by &lt;b&gt;trust</span>' in page
        assert '<span class="tag">muted</span>' not in page
    assert "allowed by" not in pages.get("/alerts?muted=without")


def test_an_alert_is_explained_as_by_the_command(pages: Pages) -> None:
    """How it stands, its window on an axis, the measure beside its threshold, and what changed."""
    ground = pages.ground
    late = NOON + timedelta(hours=30)
    add(ground.root, payment("t0", NOON - 5 * MINUTES, late, offset=2))
    ground.alert()
    ground.night(
        outcome="revised", cause="late_event", stream_revision=1, stream_measures='{"n":2}', measures='{"n":3}'
    )
    ground.corrected("alert", "late_event", measures='{"n":3}')
    page = pages.get(f"/alerts/{named()}")
    assert ground.explained(named()).splitlines()[0].split("  ", 1)[1] in page, "the command's own words"
    assert 'class="event current"' in page
    assert 'class="event late"' in page
    assert re.search(r"n: <del>2</del> <ins>3</ins>", page)
    assert "compared &gt;= 2" in page
    assert f"{DAY}" in page


def test_a_link_to_an_alert_says_when_its_event_was(pages: Pages) -> None:
    """By which it is found sooner; the page is the same without, and where somebody has changed the time."""
    pages.ground.alert()
    (link,) = set(re.findall(rf'href="\./(alerts/{named()}[^"]*)"', pages.get("/alerts")))
    assert link == f"alerts/{named()}?at={microseconds(NOON)}"
    page = pages.get(f"/{link}")
    assert page == pages.get(f"/alerts/{named()}") == pages.get(f"/alerts/{named()}?at=0")
    pages.get(f"/alerts/{named()}?at={10**30}", 400)


def test_sensitive_values_are_nowhere(tmp_path: Path) -> None:
    """Also where nobody knows which rule an alert is of, and so what was sensitive."""
    ground = small_lake(tmp_path)
    ground.alert()
    ground.alert(alert_id="e" * 32, rule_id="unknown", event_id="t9", text="ann has paid")
    ground.night(outcome="revised", cause="late_event", stream_revision=1)
    ground.corrected("retraction", "late_event")
    streams = load_streams()
    hidden = replace(streams["transactions"], sensitive=frozenset({"customer_id", "terminal_id"}))
    assert ANNS["group"] == {"customer_id": "ann"}
    addresses = ("/alerts", f"/alerts/{named()}", "/alerts.csv", f"/nights/{DAY}", "/entity?field=amount&value=1")
    addresses = (*addresses, "/rules/limit")
    for declared, shown in ((streams, True), ({**streams, "transactions": hidden}, False)):
        with serving(ground, declared) as pages:
            pages.snoozes.send([ANNS])
            assert ("2 events" in pages.get(f"{ENTITY}&last={DAY}")) == shown
            assert shown or "is sensitive" in pages.get("/entity?field=terminal_id&value=m1", 400)
            assert [bool(re.search(r"\bann\b", pages.get(address))) for address in addresses] == [shown] * len(
                addresses
            )


def test_an_alert_is_labelled_from_its_page(pages: Pages) -> None:
    """By the form that the page has, and back to the page; what the lake then has is on every page."""
    ground = pages.ground
    ground.alert()
    path = f"/alerts/{named()}"
    page = pages.get(path)
    assert "Nobody has said yet" in page
    seal = sealed(page)
    with pages.stranger() as client:
        client.get(f"/?token={pages.access.token}")
        form = {"seal": seal, "label": "fraud", "reason": HOSTILE}
        answer = client.post(f"{path}/label", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"../{named()}?at={microseconds(NOON)}#said")
        (said,) = pages.sent
        assert said | {"known_at": ""} == {
            "alert_id": named(),
            "stream": "transactions",
            "event_id": "t2",
            "label": "fraud",
            "reason": HOSTILE,
            "author": getpass.getuser(),
            "source": "analyst",
            "known_at": "",
        }
        for wrong, code in (
            ({"label": "dunno"}, 400),
            ({"reason": "x" * 501}, 400),
            ({"reason": "a\nb"}, 400),
            ({"seal": "0" * 64}, 403),
            ({"seal": ""}, 403),
            ({"seal": "\N{SNOWMAN}"}, 403),
            ({"reason": "x" * 20_000}, 413),
        ):
            assert client.post(f"{path}/label", data=form | wrong).status_code == code, wrong
        assert client.post(f"{path}/label", json=form).status_code == 415
        assert client.post(f"{path}/label", content=b"\xff", headers={"Content-Type": FORM}).status_code == 400
        assert client.post("/alerts/none/label", data=form).status_code == 400
        assert client.get(f"{path}/label").headers["location"] == f"../{named()}#said"
    with pages.stranger() as client:
        assert client.post(f"{path}/label", data=form).status_code == 401
    assert len(pages.sent) == 1
    row = LABEL.row(message(said)[1])
    assert row is not None
    fill(ground.root, LABELS, row | {"partition": 0, "offset": 0, "arrival_time": NOON, "arrival_date": DAY})
    for address in (path, "/alerts", "/alerts?label=fraud"):
        assert '<span class="tag critical">fraud</span>' in pages.get(address), address
    assert "&lt;script&gt;alert(1)" in pages.get(path)
    assert f"a-{named()}" not in pages.get("/alerts?label=none")
    assert "fraud" in pages.get("/alerts.csv")
    assert "100%" in pages.get("/rules")
    assert "1 fraud, 0 legitimate, 0 unsure" in pages.get("/rules/limit")


def test_a_group_is_snoozed_from_the_pages_and_its_alerts_are_marked(pages: Pages) -> None:
    """From the alert and the entity, until it is ended; alerts of others, and at other times, are as they were."""
    ground, path = pages.ground, f"/alerts/{named()}"
    ground.alert()
    ground.alert(alert_id=named(at=NOON - days(1)), event_time=NOON - days(1))
    ground.alert(alert_id="e" * 32, group='{"customer_id":"bob"}')
    page = pages.get(path)
    assert "This alert is not snoozed" in page
    assert "End snooze" not in page
    form = {"seal": sealed(page), "do": "snooze", "length": "30d", "since": "alert", "reason": HOSTILE}
    with pages.stranger() as client, patch("nightjar.pages.snoozes.now", lambda: microseconds(NOON + days(1))):
        client.get(f"/?token={pages.access.token}")
        answer = client.post(f"{path}/snooze", data=form)
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            f"../{named()}?at={microseconds(NOON)}#snoozed",
        )
        (record,) = pages.snoozes.records
        assert (record["rule_id"], record["group"], record["author"]) == (
            "limit",
            {"customer_id": "ann"},
            getpass.getuser(),
        )
        assert record["until"] == "2026-02-05T12:00:00.000000Z"
        for wrong, code in (
            ({"length": "for good"}, 400),
            ({"length": "367d"}, 400),
            ({"length": "0s"}, 400),
            ({"reason": " "}, 400),
            ({"reason": "a\nb"}, 400),
            ({"seal": "0" * 64}, 403),
        ):
            assert client.post(f"{path}/snooze", data=form | wrong).status_code == code, wrong
        assert client.post("/alerts/none/snooze", data=form).status_code == 400
        assert client.get(f"{path}/snooze").headers["location"] == f"../{named()}#snoozed"
        assert len(pages.snoozes.records) == 1
        page = client.get(path).text
        assert "This alert is snoozed until" in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page
        marked = re.findall(r'<tr id="a-([0-9a-f]{32})".*?</tr>', client.get("/alerts?snoozed=only").text, re.DOTALL)
        assert marked == [named()]
        assert named() not in client.get("/alerts?snoozed=without").text
        every = client.get("/alerts").text
        assert every.count("snoozed until 2026-02-05 12:00 UTC") == 1
        assert "1 snoozed</a>" in every
        rows = csv.DictReader(io.StringIO(client.get("/alerts.csv").text))
        assert [row["alert_id"] for row in rows if row["snoozed_until"]] == [named()]
        assert "1 snoozed</a>" in client.get("/rules").text
        rule, entity = client.get("/rules/limit").text, client.get(f"{ENTITY}&last={DAY}").text
        assert '<td data-title="group">ann</td>' in rule
        assert "<script>alert" not in rule + entity
        assert ", 1 snooze." in entity
        assert entity.count("<option value=") == 1 + 6 + 2, "one group, by its alert"
        end = {"seal": form["seal"], "snooze": record["snooze_id"], "reason": "is back"}
        assert client.post("/rules/limit/unsnooze", data=end | {"reason": ""}).status_code == 400
        assert client.post("/rules/limit/unsnooze", data=end).headers["location"] == "../limit#snoozed"
        assert client.post("/rules/limit/unsnooze", data=end).status_code == 400, "it is over"
        assert named() in client.get("/alerts?snoozed=only").text, "the alert's event was before the end"
        assert "0 now or later, 1 before" in client.get("/rules/limit").text
        about = {"field": "customer_id", "value": "ann", "alert": named()}
        answer = client.post("/entity/snooze", data=form | about | {"since": "now"})
        assert answer.headers["location"] == "../entity?field=customer_id&value=ann&first=&last=#snoozed"
        assert client.post("/entity/snooze", data=form | about | {"do": "end"}).status_code == 303
        assert [each["kind"] for each in pages.snoozes.records] == ["set", "ended", "set", "ended"]
        assert client.post("/entity/snooze", data=form | about | {"do": "end"}).status_code == 400
    with pages.stranger() as client:
        assert client.post(f"{path}/snooze", data=form).status_code == 401


def sealed(page: str) -> str:
    """The seal of a page's forms."""
    (seal,) = set(re.findall(r'name="seal" value="([0-9a-f]{64})"', page))
    return str(seal)


def test_who_may_only_look_has_no_form_and_sends_none(tmp_path: Path) -> None:
    """A seal that the server would make for nobody does not help."""
    nobody = Acting(None, "secret")
    ground = small_lake(tmp_path)
    ground.alert()
    with serving(ground, acting=nobody) as pages, pages.stranger() as client:
        client.get(f"/?token={pages.access.token}")
        assert "<form" not in client.get(f"/alerts/{named()}").text
        answer = client.post(f"/alerts/{named()}/label", data={"label": "fraud", "seal": nobody.seal})
        assert answer.status_code == 403
        assert "Your role may look" in answer.text
        snooze = {"do": "snooze", "length": "1d", "reason": "x", "seal": nobody.seal, "alert": named()}
        for address in (f"/alerts/{named()}/snooze", "/entity/snooze", "/rules/limit/unsnooze"):
            assert client.post(address, data=snooze).status_code == 403, address
        assert pages.sent == pages.snoozes.records == []


def test_seals_are_of_a_user_and_a_server() -> None:
    """Nobody's form is another's."""
    seals = {Acting(name, secret).seal for name in ("ann", "bob", None) for secret in ("a", "b")}
    assert len(seals) == 6


def test_an_entity_has_all_that_happened(pages: Pages) -> None:
    """Events once each, alerts with what became of them, restrictions, and labels, of the days around the newest."""
    ground = pages.ground
    add(ground.root, payment("t2", NOON, NOON + MINUTES, offset=5), payment("t3", NOON, customer_id="bob", offset=6))
    add(ground.root, payment("t4", NOON - days(7), offset=7), payment("t0", NOON - days(6), offset=8))
    ground.alert(text=HOSTILE)
    ground.alert(alert_id="e" * 32, group='{"customer_id":"bob"}', text="of bob")
    row = {
        "restriction_id": named(),
        "revision": 1,
        "kind": "restriction",
        "restrict": "block_card",
        "source": "stream",
    }
    row |= {"starts_at": NOON, "ends_at": NOON + days(400), "rule_id": "limit", "rule_version": 1}
    row |= {"stream": "transactions", "group": GROUP, "event_id": "t2", "arrival_date": DAY}
    fill(ground.root, RESTRICTIONS, row, row | {"restriction_id": "d" * 32, "restrict": "lifted_one"})
    fill(ground.root, RESTRICTIONS, row | {"restriction_id": "d" * 32, "revision": 2, "kind": "lift"})
    label = {"label": "fraud", "author": "bank", "source": "chargeback", "known_at": NOON + days(20)}
    label |= {"stream": "transactions", "partition": 0, "arrival_time": NOON, "arrival_date": DAY}
    fill(ground.root, LABELS, *(label | {"event_id": event, "offset": at} for at, event in enumerate(("t1", "t3"))))
    page = pages.get(ENTITY)
    assert "3 events, 1 alert, 2 restrictions, 1 label" in page
    assert "block_card" in page
    assert "of event t1" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "of bob" not in page
    assert page.count("<circle") == 5, "the label became known later"
    assert page.count('class="span"') == 1
    assert f'href="../entity?field=customer_id&amp;value=ann&amp;last={DAY}"' in pages.get(f"/alerts/{named()}")
    assert "1 event, 0 alerts" in pages.get(f"{ENTITY}&first=2025-12-29&last=2025-12-29")
    assert "4 events" in pages.get("/entity?field=amount&value=1"), "of bob, too"
    assert "The lake has nothing" in pages.get("/entity?field=amount&value=x")
    with patch("nightjar.pages.entity_reader.EVENTS_SHOWN", 2):
        assert "of transactions 1 earlier events are left out" in pages.get(ENTITY)
    for wrong, why in (("field=x&value=1", "is not a field"), ("field=amount&value=1&last=x", "not a valid date")):
        assert why in pages.get(f"/entity?{wrong}", 400)


def test_nights_and_rules(pages: Pages) -> None:
    """Each day with its causes; each rule with its versions and what changed between them."""
    ground = pages.ground
    ground.alert()
    ground.night(outcome="revised", cause="late_event", stream_revision=1)
    known = Precision("limit", 1, 1, 3, 0).as_dict()
    cut = microseconds(NOON)
    fill(ground.root, RUNS, RunManifest("r2", DAY, RunState.FINISHED, cut, cut, counts={"precision": [known]}).row())
    assert "1 fraud, 3 legitimate, so 25% was fraud" in pages.get(f"/nights/{DAY}")
    assert "Snoozed groups" not in pages.get(f"/nights/{DAY}")
    ground.corrected("alert", "late_event", text="three payments")
    ground.publish(LIMIT | {"when": "n >= 3", "author": "Kim"}, at=PUBLISHED + days(1))
    nights = pages.get("/nights")
    assert "late event" in nights
    assert f"nights/{DAY}" in nights
    assert "three payments" in pages.get(f"/nights/{DAY}")
    assert "Kim" in pages.get("/rules")
    rule = pages.get("/rules/limit")
    assert "+when: n &gt;= 3" in rule
    assert "-when: n &gt;= 2" in rule


def test_a_night_names_the_snoozed_groups(pages: Pages) -> None:
    """By whom, until when and why, with the alerts that each covers; one that was erased has only these."""
    at = microseconds(NOON)
    given = {"rule_id": "limit", "group": '{"customer_id":"ann"}', "since": at, "until": at + 10**9, "now": at}
    record = snooze_record(**given, author="kim", reason="<b>travels</b>")
    row = JsonReader(SNOOZES).row(snooze_message(record)[1])
    row |= {name: from_microseconds(row[name]) for name in ("since", "until", "set_at")}
    fill(pages.ground.root, SNOOZES, row | {"partition": 0, "offset": 0, "arrival_time": NOON, "arrival_date": DAY})
    counted = [Snoozed(record["snooze_id"], "limit", 1234), Snoozed("0" * 32, "limit", 5)]
    counts = {"snoozed": [each.as_dict() for each in counted]}
    fill(pages.ground.root, RUNS, RunManifest("r3", DAY, RunState.FINISHED, at, at, counts=counts).row())
    page = pages.get(f"/nights/{DAY}")
    assert "ann</td>" in page
    assert "1,234" in page
    assert "2026-01-05 12:16:40 UTC" in page
    assert "&lt;b&gt;travels&lt;/b&gt;" in page
    assert "forgotten" in page


def test_bars_hold_every_alert_of_the_days() -> None:
    """By hour up to three days, else by day; none is outside."""
    times = [NOON + timedelta(hours=hour) for hour in range(0, 40, 5)]
    alerts = pl.DataFrame({"event_time": times}, schema={"event_time": pl.Datetime("us", "UTC")})
    for last, unit, places in ((DAY + timedelta(days=2), "hour", 72), (DAY + timedelta(days=9), "day", 10)):
        said, bars = drawing.by_time(alerts, DAY, last, 80)
        assert (said, len(bars), sum(bar.count for bar in bars)) == (unit, places, len(times))
        assert max(bar.x + bar.width for bar in bars) <= drawing.WIDTH
