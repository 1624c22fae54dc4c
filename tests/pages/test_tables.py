"""The pages of tables over an in-memory topic: what they show, and who changes what."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from markupsafe import escape

from nightjar.contracts.table_changes import change_record
from nightjar.kafka.clients import KafkaError
from nightjar.pages.acting import Acting
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import load_streams
from nightjar.rules.tables import TableType
from nightjar.rules.types import BOOLEAN, INT64, STRING, Kind, decimal
from tests.support.explained_lake import DAY, LIMIT, Ground, small_lake
from tests.support.served_pages import Pages, TablesTopic, serving

HOSTILE = "<script>alert(1)</script>&\"'"
TABLES = {"blocked": STRING, "ports": INT64, "checked": TableType(Kind.STRING, approved_from=0)}
STREAMS = {name: replace(stream, tables=TABLES) for name, stream in load_streams().items()}
ANN, BOB, VIEWER = Acting("ann", "s"), Acting("bob", "s"), Acting(None, "s")
YEAR = timedelta(days=365)


@pytest.fixture
def topic() -> TablesTopic:
    """Nothing has been changed yet."""
    return TablesTopic()


@contextmanager
def entered(pages: Pages) -> Iterator[httpx.Client]:
    """A client that has shown the token."""
    with pages.stranger() as client:
        client.get(f"/?token={pages.access.token}")
        yield client


def sent(pages: Pages, path: str, by: Acting = ANN, code: int = 303, **form: str) -> httpx.Response:
    """The answer to a form of the user's."""
    with entered(pages) as client:
        answer = client.post(path, data={"seal": by.seal, **form})
    assert answer.status_code == code, answer.text
    return answer


def written(topic: TablesTopic) -> list[dict[str, Any]]:
    """The records that were sent, without their ids."""
    return [{k: v for k, v in json.loads(record.value).items() if k != "id"} for record in topic.records]


def test_a_list_is_changed_and_says_so(tmp_path: Path, topic: TablesTopic) -> None:
    """By whom, since when, until when and why; the overview has the last change."""
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        assert pages.get("/tables").count("none yet") == 3
        assert "It has no key now" in pages.get("/tables/blocked")
        until = f"{datetime.now(UTC) + YEAR:%Y-%m-%dT%H:%M}"
        answer = sent(
            pages, "/tables/blocked/change", keys=" a b \r\n\r\n", reason="seen twice", until=until, change="set"
        )
        there = answer.headers["location"]
        assert there.startswith("../blocked?key=a+b&sent=")
        page = pages.get(there.removeprefix("..").replace("/blocked", "/tables/blocked"))
        for text in ("It is done.", "It is on the list.", "seen twice", until.replace("T", " "), "ann"):
            assert text in page, text
        known = {"table": "blocked", "author": "ann", "reason": "seen twice"}
        ends = {"remove": ["a b"], "valid_from": f"{until}:00.000000Z"}
        assert written(topic) == [known | {"set": ["a b"]}, known | ends]
        sent(pages, "/tables/blocked/change", keys="a b\nc", reason="why not", change="remove")
        page = pages.get("/tables/blocked?key=a+b&sent=x")
        assert "It is not on the list." in page
        assert "It has had no effect" in page
        overview = pages.get("/tables")
        assert "why not" in overview
        assert re.search(r'data-title="changes" class="number">3<', overview)


@pytest.mark.parametrize(
    ("form", "code", "why"),
    [
        ({"reason": " "}, 400, "reason: is missing"),
        ({"reason": "x" * 501}, 400, "at most 500"),
        ({"keys": "\n"}, 400, "key: is missing"),
        ({"keys": "x" * 257}, 400, "cannot be a key"),
        ({"change": "drop"}, 400, "change: is missing"),
        ({"until": "soon"}, 400, "not a point in time"),
        ({"until": "2020-01-01T00:00"}, 400, "has passed"),
        ({"until": "2300-01-01T00:00", "change": "remove"}, 400, "only for keys that are set"),
        ({"seal": BOB.seal}, 403, "open the page again"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, topic: TablesTopic, form: dict[str, str], code: int, why: str
) -> None:
    """With the reason, and nothing is sent."""
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        good = {"keys": "a", "reason": "seen", "change": "set"}
        assert why in sent(pages, "/tables/blocked/change", code=code, **(good | form)).text
        sent(pages, "/tables/blocked/change", code=303, **good)
    assert len(topic.records) == 1


def test_rows_with_values_are_imported_and_set(tmp_path: Path, topic: TablesTopic) -> None:
    """The page shows the values of changes; the form has those of a key, and sets all that it says and no others."""
    kinds = (("most", decimal(6, 2)), ("name", STRING), ("open", BOOLEAN))
    cards = {"cards": TableType(Kind.STRING, values=kinds)}
    streams = {name: replace(stream, tables=cards) for name, stream in STREAMS.items()}
    with serving(Ground(tmp_path), streams, ANN, topic) as pages:
        form = {"reason": "contracts", "format": "csv", "rows": "key,most\nc1,5\nc2,\n"}
        shown = sent(pages, "/tables/cards/import", code=200, **form).text
        (seen,) = re.findall(r'name="seen" value="([^"]*)"', shown)
        sent(pages, "/tables/cards/import", seen=seen, **form)
        assert "c1, c2 (c1: most=5.00; c2: )" in pages.get("/tables/cards?sent=x")
        assert '<td data-title="values" class="prose">most=5.00</td>' in pages.get("/tables/cards")
        assert "<dt>values</dt><dd>most=5.00</dd>" in pages.get("/tables/cards?key=c1")
        changed = sent(pages, "/tables/cards/import", code=200, **form | {"rows": "key,most\nc1,6\nc2,\n"}).text
        assert "<dt>already there</dt><dd>1</dd>" in changed
        assert "<dt>set again</dt><dd>1, from a time that the rows state, or with other values</dd>" in changed
        of_key = re.findall(r'name="value-(\w+)"[^>]* value="([^"]*)"', pages.get("/tables/cards?key=c1"))
        assert of_key == [("most", "5.00"), ("name", ""), ("open", "")]
        assert re.findall(r'name="value-(\w+)"[^>]* value="([^"]*)"', pages.get("/tables/cards"))[0] == ("most", "")
        good = {"keys": "c1", "reason": "why not"}
        values = {"value-most": " 7.5 ", "value-name": HOSTILE, "value-open": "true"}
        wrong = {
            "the rows of this table have some": {"value-most": "7.5"},
            "&#39;x&#39; is not a decimal(6,2)": values | {"value-most": "x"},
            "&#39;ja&#39; is not a boolean": values | {"value-open": "ja"},
        }
        for why, given in wrong.items():
            assert why in sent(pages, "/tables/cards/change", code=400, change="set", **good, **given).text
        until = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
        done = sent(pages, "/tables/cards/change", change="set", until=until, **good, **values)
        shown = pages.get("/tables/" + done.headers["location"].removeprefix("../"))
        assert HOSTILE not in shown
        assert dict(re.findall(r'name="value-(\w+)"[^>]* value="([^"]*)"', shown)) == {
            "most": "7.50",
            "name": str(escape(HOSTILE)),
            "open": "true",
        }
        sent(pages, "/tables/cards/change", change="remove", **good)
    said = {"table": "cards", "author": "ann"}
    first, second, ended, removed = written(topic)
    assert first == said | {"set": ["c1", "c2"], "values": [{"most": "5.00"}, {}], "reason": "contracts"}
    set_again = {"most": "7.50", "name": HOSTILE, "open": True}
    assert second == said | {"set": ["c1"], "values": [set_again], "reason": "why not"}
    assert ended == said | {"remove": ["c1"], "reason": "why not", "valid_from": ended["valid_from"]}
    assert removed == said | {"remove": ["c1"], "reason": "why not"}


def test_who_may_only_look_sees_lists_and_changes_none(tmp_path: Path, topic: TablesTopic) -> None:
    """No page has a form that sends; the server refuses what the page does not offer."""
    topic.append([change_record(table, ["x"], is_set=True, author="ann", id="one") for table in ("blocked", "checked")])
    with serving(Ground(tmp_path), STREAMS, VIEWER, topic) as pages:
        for path in ("/tables", "/tables/blocked", "/tables/blocked?key=x", "/tables/checked"):
            page = pages.get(path)
            assert 'method="post"' not in page
            assert "Approve" not in page
            assert "Decline" not in page
        assert "waits" in pages.get("/tables/checked")
        form = {"keys": "a", "rows": "a", "id": "one", "reason": "seen", "change": "set"}
        for act in ("change", "import", "approve", "decline"):
            assert "Your role may look" in sent(pages, f"/tables/checked/{act}", VIEWER, 403, **form).text
            with entered(pages) as client:
                assert client.get(f"/tables/checked/{act}").headers["location"] == "../checked"
    assert len(topic.records) == 2


def test_somebody_else_approves(tmp_path: Path, topic: TablesTopic) -> None:
    """The author has no button, and cannot approve without it."""
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        sent(pages, "/tables/checked/change", keys="x\ny", reason="seen", change="set")
        name = json.loads(topic.records[0].value)["id"]
        page = pages.get(f"/tables/checked?sent={name}")
        assert "waits until somebody else approves it" in page
        assert "for somebody else than you" in page
        assert "its approval" in page
        assert "1 waiting" in pages.get("/tables")
        assert "was ordered by ann" in sent(pages, "/tables/checked/approve", code=400, id=name).text
        assert "It has no key now" in pages.get("/tables/checked")
    with serving(Ground(tmp_path), STREAMS, BOB, topic) as pages:
        assert f'aria-label="Approve {name}"' in pages.get("/tables/checked")
        assert sent(pages, "/tables/checked/approve", BOB, id=name).headers["location"] == f"../checked?sent={name}"
        assert "It is done." in pages.get(f"/tables/checked?sent={name}")
        assert "approved by bob" in pages.get("/tables/checked?key=x")
        assert "no change of checked that waits" in sent(pages, "/tables/checked/approve", BOB, 400, id=name).text


def test_somebody_declines(tmp_path: Path, topic: TablesTopic) -> None:
    """The author, too; the page says who did it and why, and nobody can approve it any more."""
    names = ("one", "two")
    topic.append([change_record("checked", [name], is_set=True, author="ann", id=name) for name in names])
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        assert 'aria-label="Decline one"' in pages.get("/tables/checked")
        assert "reason: is missing" in sent(pages, "/tables/checked/decline", code=400, id="one").text
        there = sent(pages, "/tables/checked/decline", id="one", reason=HOSTILE).headers["location"]
        assert there == "../checked?sent=one"
        page = pages.get("/tables/checked?sent=one")
        assert "It is declined, and never takes effect." in page
        assert escape(HOSTILE) in page
    with serving(Ground(tmp_path), STREAMS, BOB, topic) as pages:
        assert "no change of checked that waits" in sent(pages, "/tables/checked/approve", BOB, 400, id="one").text
        sent(pages, "/tables/checked/decline", BOB, id="two", reason="not ours")
        page = pages.get("/tables/checked?sent=two")
        assert page.index("by bob: not ours") < page.index("by ann")
        assert 'aria-label="Decline' not in page


def test_an_import_is_shown_before_it_is_sent(tmp_path: Path, topic: TablesTopic) -> None:
    """What is new, there, refused; only what the preview had is sent, and only to the list that it saw."""
    topic.append([change_record("ports", [22, 23], is_set=True, author="bob", reason="old")])
    rows = {"format": "csv", "reason": "feed", "replace": "yes"}
    rows["rows"] = "key,valid_until,author\n22,,\n80,2300-01-01T00:00:00Z,\nx,,\n81,,eve\n"
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        page = sent(pages, "/tables/ports/import", code=200, **rows).text
        assert "2 lines cannot be used" in page
        assert "x cannot be a key" in page
        assert "author &#39;eve&#39; is not you" in page
        assert 'name="seen"' not in page
        rows["rows"] = rows["rows"].replace("x,,\n81,,eve\n", "81,,ann\n")
        page = sent(pages, "/tables/ports/import", code=200, **rows).text
        for name, shown in (("new", "2: 80, 81"), ("already there", "1"), ("with an end", "1"), ("removed", "1")):
            assert f"<dt>{name}</dt><dd>{shown}" in page
        (seen,) = re.findall(r'name="seen" value="([^"]+)"', page)
        assert len(topic.records) == 1, "nothing was sent"
        topic.append([change_record("ports", [443], is_set=True, author="bob")])
        again = sent(pages, "/tables/ports/import", code=200, seen=seen, **rows).text
        assert "the list has changed since the preview" in again
        assert len(topic.records) == 2
        (seen,) = re.findall(r'name="seen" value="([^"]+)"', again)
        sent(pages, "/tables/ports/import", seen=seen, **rows)
        known = {"table": "ports", "author": "ann", "reason": "feed"}
        assert written(topic)[2:] == [
            known | {"set": [80, 81]},
            known | {"remove": [80], "valid_from": "2300-01-01T00:00:00.000000Z"},
            known | {"remove": [23, 443]},
        ]
        assert "Nothing would change" in sent(pages, "/tables/ports/import", code=200, rows="80", reason="feed").text
        assert (
            "is not a column of rows"
            in sent(pages, "/tables/ports/import", code=400, **rows | {"rows": "port\n1\n"}).text
        )
        with patch("nightjar.pages.tables._MOST_ROWS", 100):
            long = sent(pages, "/tables/ports/import", code=413, rows="1\n" * 99, reason="feed").text
        assert "nightjar table import" in long


def test_nothing_on_a_list_is_markup(tmp_path: Path, topic: TablesTopic) -> None:
    """Neither what others wrote, nor what the user did."""
    for table in ("blocked", "checked"):
        texts = {"author": HOSTILE, "reason": HOSTILE, "id": HOSTILE}
        topic.append([change_record(table, [HOSTILE], is_set=True, **texts)])
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        quoted = "%3Cscript%3Ealert(1)%3C/script%3E%26%22%27"
        for path in ("/tables", "/tables/blocked", f"/tables/blocked?key={quoted}", "/tables/checked"):
            page = pages.get(path)
            assert "<script>alert" not in page
            assert "&lt;script&gt;alert" in page
        for form in ({"rows": HOSTILE}, {"rows": f"key,author\n1,{HOSTILE}", "format": "csv"}):
            page = sent(pages, "/tables/ports/import", code=200, reason=HOSTILE, **form).text
            assert "<script>alert" not in page
            assert "&lt;script&gt;alert" in page
        for path in (f"/tables/{quoted.replace('/', '%2F')}", f"/tables/ports?key={quoted}"):
            assert "<script>alert" not in pages.get(path, 404 if "ports" not in path else 400)


def test_pages_of_keys_hold_fifty_each(tmp_path: Path, topic: TablesTopic) -> None:
    """The last changed first."""
    topic.append([change_record("ports", [key], is_set=True, author="ann") for key in range(51)])
    with serving(Ground(tmp_path), STREAMS, ANN, topic) as pages:
        found = (pages.get(f"/tables/ports?page={number}") for number in (1, 9))
        shown = [re.findall(r'href="../tables/ports\?key=(\d+)"', page) for page in found]
        assert shown == [[str(key) for key in range(50, 0, -1)], ["0"]]


def test_keys_of_a_list_that_is_asked_about_a_sensitive_field_are_hidden(tmp_path: Path, topic: TablesTopic) -> None:
    """As far as rules are known; other lists are shown."""
    ground = small_lake(tmp_path)
    for table in ("blocked", "checked"):
        topic.append([change_record(table, ["ann-1"], is_set=True, author="kim", id=table)])
    sensitive = replace(STREAMS["transactions"], sensitive=frozenset({"terminal_id"}))
    ground.publish(LIMIT | {"id": "asks", "where": "terminal_id IN blocked"}, stream=STREAMS["transactions"])
    with serving(ground, {**STREAMS, "transactions": sensitive}, ANN, topic) as pages:
        page = pages.get("/tables/blocked")
        assert "ann-1" not in page
        assert "•••" in page
        assert "sensitive field" in pages.get("/tables/blocked?key=ann-1", 400)
        assert "ann-1" in pages.get("/tables/checked")
        answer = sent(pages, "/tables/blocked/change", keys="ann-2", reason="seen", change="set")
        assert "ann-2" not in answer.headers["location"]


def test_an_entity_says_which_lists_have_it(tmp_path: Path, topic: TablesTopic) -> None:
    """Those that can be asked about the field."""
    topic.append([change_record("blocked", ["ann"], is_set=True, author="kim")])
    with serving(small_lake(tmp_path), STREAMS, ANN, topic) as pages:
        page = pages.get(f"/entity?field=customer_id&value=ann&last={DAY}")
        assert re.search(r'tables/blocked\?key=ann">blocked</a> <span class="tag warning">has it now', page)
        assert re.search(r'tables/checked\?key=ann">checked</a> <span class="quiet">does not', page)
        assert "tables/ports" not in page


def test_without_kafka_an_entity_has_links_and_a_list_says_why_not(tmp_path: Path) -> None:
    """Pages that do without lists ask Kafka once, and not again for a while."""
    asked: list[int] = []

    class Unreachable(TablesTopic):
        def since(self, offset: int) -> list[Record]:
            asked.append(offset)
            raise KafkaError("no broker responds", where="Kafka at x:9")

    with serving(small_lake(tmp_path), STREAMS, ANN, Unreachable()) as pages:
        for _ in range(2):
            page = pages.get(f"/entity?field=customer_id&value=ann&last={DAY}")
            assert re.search(r"tables/blocked\?key=ann.*not known: Kafka cannot be read", page)
        assert len(asked) == 1
        assert "no broker responds" in pages.get("/tables/blocked", 503)
        sent(pages, "/tables/blocked/change", code=503, keys="a", reason="seen", change="set")
