"""The outbox: what waits, what a target is told, and what stays after a crash."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.notifications.outbox import Outbox, Routed, Sealed, Standing
from nightjar.rules.errors import SettingsError
from tests.support.alert_records import alert

SECOND = 1_000_000
TOPIC = "alerts"


class Desk:
    """A target's view: time in seconds; a message is due ten seconds after its first alert."""

    def __init__(self, file: Path) -> None:
        self.file, self.outbox, self.offset = file, Outbox(file), 0

    def reopen(self) -> None:
        """As after a crash: what is not committed is gone."""
        self.outbox.__exit__()
        self.outbox = Outbox(self.file)

    def take(self, *records: dict[str, Any], at: int = 0, grouping: str = "g", urgent: bool = False) -> None:
        """Records come."""
        self.offset += len(records)
        routed = [Routed("desk", record, grouping, 10 * SECOND, urgent) for record in records]
        self.outbox.take(TOPIC, routed, {0: self.offset}, at * SECOND)

    def next(self, at: int, *, quiet: bool = False, listed: int = 100, splits: bool = True) -> Sealed | None:
        """What is to be sent."""
        return self.outbox.next("desk", at * SECOND, quiet=quiet, listed=listed, splits=splits)

    def send(self, at: int = 1_000) -> list[tuple[str, str]]:
        """What the target is told of, by one message after the other."""
        found = []
        while (sealed := self.next(at)) is not None:
            found += told(sealed)
            self.outbox.delivered(sealed)
        return found


def told(sealed: Sealed | None) -> list[tuple[str, str]]:
    """Kind and event of each alert in a message."""
    assert sealed is not None
    return [(each["kind"], each["event_id"]) for each in sealed.message.alerts]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """With an empty outbox."""
    made = Desk(tmp_path / "data" / "outbox.sqlite")
    yield made
    made.outbox.__exit__()


def test_a_group_is_sent_once_it_is_due(desk: Desk) -> None:
    """The time runs from its first alert; another group has its own, and a target has no other's."""
    desk.take(alert("t1"), at=0)
    desk.take(alert("t2"), at=9)
    desk.take(alert("t3"), at=9, grouping="other")
    assert desk.next(9) is None
    assert desk.outbox.next("mail", 1_000 * SECOND, quiet=False, listed=9, splits=True) is None
    first = desk.next(10)
    assert told(first) == [("alert", "t1"), ("alert", "t2")]
    assert first is not None
    desk.outbox.delivered(first)
    assert desk.next(18) is None
    assert told(desk.next(19)) == [("alert", "t3")]


def test_of_a_snoozed_alert_nobody_is_told_but_its_retraction_is_sent(desk: Desk) -> None:
    """Once each counts, however many revisions it has; what waits is not sent, and what was told is withdrawn."""

    def take(*records: dict[str, Any], snoozed: bool = True) -> int:
        routed = [Routed("desk", record, "g", 0, urgent=False, snoozed=snoozed) for record in records]
        return desk.outbox.take(TOPIC, routed, {}, 0)["desk"]

    assert take(alert("told"), snoozed=False) == 0
    assert desk.send() == [("alert", "told")]
    assert take(alert("waits"), snoozed=False) == 0
    assert take(alert("new"), alert("new", revision=2), alert("muted", muted=True), alert("waits", revision=2)) == 2
    assert desk.send() == []
    assert take(*(alert(name, revision=3, kind="retraction") for name in ("new", "waits", "told"))) == 0
    assert desk.send() == [("retraction", "told")]


def test_a_message_keeps_content_and_key_until_it_is_delivered(desk: Desk) -> None:
    """Also over a crash; alerts that come meanwhile are in the next."""
    desk.take(alert("t1"))
    first = desk.next(10)
    assert first is not None
    desk.outbox.failed(first, "busy")
    desk.take(alert("t2"), alert("t1", revision=2, text="changed"), at=11)
    desk.reopen()
    again = desk.next(100)
    assert again is not None
    assert again.message == first.message
    assert (again.attempts, again.tried_since) == (1, 10 * SECOND)
    desk.outbox.delivered(again)
    second = desk.next(100)
    assert told(second) == [("alert", "t2")]
    assert second is not None
    assert second.message.key != first.message.key


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{}, {"revision": 2, "text": "new"}], ["alert: new"]),
        ([{"revision": 2, "text": "new"}, {}], ["alert: new"]),
        ([{}, {"source": "backfill", "text": "right"}, {}], ["alert: right"]),
        ([{}, {"revision": 2, "kind": "retraction"}], []),
        ([{}, {"revision": 2, "kind": "retraction"}, {"revision": 3}], ["alert: 4 payments"]),
        ([{}, {"revision": 2, "muted": True}], []),
        ([{"muted": True}, {"revision": 2}], ["alert: 4 payments"]),
        ([{"overflow": True}], []),
        ([{"overflow": True}, {"revision": 2, "kind": "retraction"}], []),
        ([{"rule_state": "shadow"}], []),
        ([{"overflow": False}], ["alert: 4 payments"]),
    ],
)
def test_what_waits_is_the_latest_revision(desk: Desk, records: list[dict[str, Any]], expected: list[str]) -> None:
    """Nothing where it is retracted, muted, beyond the cap, or of a rule that is tried."""
    desk.take(*(alert("t1", **each) for each in records))
    sealed = desk.next(1_000)
    found = [] if sealed is None else [f"{each['kind']}: {each['text']}" for each in sealed.message.alerts]
    assert found == expected


def test_what_was_sent_is_retracted_once(desk: Desk) -> None:
    """Not for a revision of its values, nor if it is back before that is sent; and sent again if it comes back."""
    desk.take(alert("t1"))
    assert desk.send() == [("alert", "t1")]
    desk.take(alert("t1", revision=2), alert("t1", revision=3, muted=True))
    assert desk.send() == []
    desk.take(alert("t1", revision=4, kind="retraction"), alert("t1", revision=5))
    assert desk.send() == []
    desk.take(alert("t1", revision=6, kind="retraction"))
    desk.reopen()
    assert desk.send() == [("retraction", "t1")]
    desk.take(alert("t1", revision=7, kind="retraction"))
    assert desk.send() == []
    desk.take(alert("t1", revision=8))
    assert desk.send() == [("alert", "t1")]


def test_what_an_allow_rule_silences_afterwards_is_taken_back(desk: Desk) -> None:
    """Once, and only if the target has it; without the silence it is told again."""
    silenced = {"muted": True, "measures": {"allowed_by": "known-device"}}
    desk.take(alert("t0", **silenced), alert("t1"))
    assert desk.send() == [("alert", "t1")]
    desk.take(alert("t1", revision=2, **silenced))
    sealed = desk.next(1_000)
    assert sealed is not None
    assert (sealed.message.announcements, sealed.message.retractions) == (0, 1)
    desk.outbox.delivered(sealed)
    desk.take(alert("t1", revision=3, kind="retraction"))
    assert desk.send() == []
    desk.take(alert("t1", revision=4))
    assert desk.send() == [("alert", "t1")]
    desk.take(alert("t1", revision=5, measures={"allowed_by": "a measure of that name"}))
    assert desk.send() == []


@given(
    kinds=st.lists(st.tuples(st.sampled_from(["alert", "retraction", "muted"]), st.booleans()), max_size=8),
    repeats=st.booleans(),
)
def test_whenever_it_is_sent_the_target_knows_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[str, bool]], repeats: bool
) -> None:
    """An alert and its retraction alternate, and the last one is what the last revision says; redelivery of the
    topic's records changes nothing."""
    desk = Desk(tmp_path_factory.mktemp("drawn") / "outbox.sqlite")
    found, records = [], []
    for revision, (kind, sends) in enumerate(kinds, 1):
        more = {"muted": True} if kind == "muted" else {"kind": kind}
        records.append(alert("t1", revision=revision, **more))
        desk.take(records[-1])
        found += desk.send() if sends else []
    found += desk.send()
    if repeats:
        desk.take(*records)
        assert desk.send() == []
    told = [kind for kind, _ in found]
    assert told == ["alert", "retraction"] * (len(told) // 2) + ["alert"] * (len(told) % 2)
    last = kinds[-1][0] if kinds else "retraction"
    if last != "muted":
        assert bool(len(told) % 2) is (last == "alert")
    desk.outbox.__exit__()


def test_quiet_hours_hold_what_is_not_urgent(desk: Desk) -> None:
    """What was being tried already too; afterwards everything is sent."""
    desk.take(alert("t1"))
    desk.take(alert("t2"), urgent=True)
    assert told(desk.next(10)) == [("alert", "t1")]
    urgent = desk.next(10, quiet=True)
    assert told(urgent) == [("alert", "t2")]
    assert told(desk.next(10)) == [("alert", "t1")], "what was made first"
    assert urgent is not None
    desk.outbox.delivered(urgent)
    assert desk.next(10, quiet=True) is None
    assert desk.outbox.standing("desk", 50 * SECOND, quiet=True) == Standing(1, 0, None)
    assert desk.outbox.standing("desk", 50 * SECOND, quiet=False) == Standing(1, 0, 10 * SECOND)
    assert desk.send() == [("alert", "t1")]


def test_many_alerts_are_in_several_messages(desk: Desk) -> None:
    """Where a program takes them; none twice, and none is left."""
    desk.take(*(alert(f"t{number}") for number in range(25)))
    messages = []
    while (sealed := desk.next(10, listed=10)) is not None:
        messages.append(told(sealed))
        desk.outbox.delivered(sealed)
    assert [len(each) for each in messages] == [10, 10, 5]
    assert len({event for each in messages for _, event in each}) == 25


def test_many_alerts_are_counted_for_people(desk: Desk) -> None:
    """Those that are not listed count as told: their retraction is sent."""
    desk.take(*(alert(f"t{number}") for number in range(25)))
    sealed = desk.next(10, listed=10, splits=False)
    assert sealed is not None
    assert (len(sealed.message.alerts), sealed.message.more) == (10, {"alert": 15})
    assert (sealed.message.announcements, sealed.message.retractions) == (25, 0)
    desk.outbox.delivered(sealed)
    assert desk.next(10) is None
    desk.take(*(alert(f"t{number}", revision=2, kind="retraction") for number in range(25)), at=20)
    assert len(desk.send()) == 25


def test_what_is_given_up_is_kept(desk: Desk) -> None:
    """It is not in the way of others, and is tried again if a person says so."""
    desk.take(alert("t1"))
    first = desk.next(10)
    assert first is not None
    desk.outbox.failed(first, "it answers 400", given_up=20 * SECOND)
    assert desk.next(1_000) is None
    (kept,) = desk.outbox.given_up()
    assert (kept.target, kept.key, kept.alerts, kept.attempts, kept.reason) == (
        "desk",
        first.message.key,
        1,
        1,
        "it answers 400",
    )
    assert desk.outbox.standing("desk", 50 * SECOND, quiet=False) == Standing(0, 1, None)
    assert desk.outbox.retry(30 * SECOND) == 1
    again = desk.next(1_000)
    assert again is not None
    assert (again.message, again.attempts, again.tried_since) == (first.message, 0, 30 * SECOND)


def test_what_is_old_is_forgotten(desk: Desk) -> None:
    """What waits is not."""
    desk.take(alert("t1"), at=0)
    assert desk.send() == [("alert", "t1")]
    desk.take(alert("t2"), at=5)
    desk.outbox.prune(100 * SECOND)
    desk.take(alert("t1", revision=2, kind="retraction"), at=200)
    assert desk.send() == [("alert", "t2")]


def test_records_and_offsets_change_together(desk: Desk) -> None:
    """If one record cannot be taken in, nothing is."""
    desk.take(alert("t1"))
    with pytest.raises(KeyError):
        desk.outbox.take(
            TOPIC, [Routed("desk", record, "g", 0, urgent=False) for record in (alert("t2"), {})], {0: 9}, 0
        )
    assert desk.outbox.offsets(TOPIC) == {0: 1}
    assert desk.send() == [("alert", "t1")]
    assert desk.outbox.left_to_others(["desk"]) == {}


def test_messages_of_a_target_that_is_gone_are_noticed(desk: Desk) -> None:
    """They wait until it is back."""
    desk.take(alert("t1"))
    assert desk.outbox.left_to_others(["mail"]) == {"desk": 1}


def test_the_file_is_its_owners(desk: Desk, tmp_path: Path) -> None:
    """A file of another program, or of a later release, is refused."""
    assert desk.file.stat().st_mode & 0o777 == 0o600
    assert desk.file.parent.stat().st_mode & 0o777 == 0o700
    desk.reopen()
    with sqlite3.connect(desk.file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SettingsError, match="is of another release"):
        Outbox(desk.file)
    other = tmp_path / "other"
    other.write_text("not a database, and longer than a page would be" * 100)
    with pytest.raises(SettingsError, match="cannot be opened"):
        Outbox(other)
