"""Four eyes: a version takes effect when a second person approves it, whoever sends what in which order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.contracts.rule_status import fold
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import RULE_STATUS
from nightjar.rules.approval import APPROVE, DECLINE, same_person
from nightjar.rules.publishing import CONTROLS
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.streaming.driver.answering import answer_to

STREAMS = load_streams()
SECOND = 1_000_000
DELAY = 5 * SECOND
RULE: dict[str, Any] = {
    "id": "large",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 100",
    "author": "ann",
    "reason": "a trial",
}
APPROVAL = {"control": APPROVE, "rule": "large", "version": 1, "author": "bob", "reason": "looked at a week of it"}

DECLINED = APPROVAL | {"control": DECLINE, "author": "eve", "reason": "too many alerts"}


class Topics:
    """The messages and their answers; message number n arrives n seconds after 1970. approvals: the job's setting."""

    def __init__(self, approvals: int = 1) -> None:
        self.book = RuleBook(STREAMS)
        self.answers: list[Record] = []
        self._running = list(self.book.shuffle_keys)
        self.approvals = approvals

    def send(self, message: Any) -> dict[str, Any]:
        """The answer to the next message."""
        offset = self.book.next_message
        value = message if isinstance(message, bytes) else json.dumps(message).encode()
        record = Record(offset, offset * SECOND, value)
        place = f"rules-0-{offset}"
        _, answer = answer_to(record, place, self.book, self._running, DELAY, approvals=self.approvals)
        self.answers.append(Record(offset, offset * SECOND, json.dumps(answer).encode()))
        fold(self.book, self.answers[-1])
        return json.loads(self.answers[-1].value)  # type: ignore[no-any-return]

    def refusal(self, message: Any) -> str:
        """Why a message is rejected; it changes nothing."""
        before = self.book.ruleset, self.book.every
        answer = self.send(message)
        assert (answer["status"], answer["effective"]) == ("REJECTED", None)
        assert (self.book.ruleset, self.book.every) == before
        return " ".join(answer["reasons"])


def test_a_proposed_version_is_in_force_after_its_approval() -> None:
    """Both names and reasons are in the answer, and the delay counts from the approval."""
    topics = Topics()
    proposed = topics.send(RULE)
    assert (proposed["status"], proposed["rule_version"], proposed["effective"]) == ("PROPOSED", 1, None)
    assert proposed["reasons"] == [
        "waits for approval by somebody other than ann: nightjar rules approve large --version 1"
    ]
    assert topics.book.ruleset.versions == ()
    answer = topics.send(APPROVAL)
    assert (answer["status"], answer["rule_version"], answer["effective"]) == ("ACCEPTED", 1, iso_text(6 * SECOND))
    assert (answer["approver"], answer["approval_reason"]) == ("bob", "looked at a week of it")
    assert (answer["rule"]["author"], answer["rule"]["reason"]) == ("ann", "a trial")
    (version,) = topics.book.ruleset.versions
    assert (version.version, version.effective, version.is_proposed) == (1, 6 * SECOND, False)
    assert (topics.book.published["large", 1], topics.book.answered["large", 1]) == (0, SECOND)


@pytest.mark.parametrize(("given", "applies"), [(3, 6), (6, 6), (90, 90)])
def test_a_given_time_counts_where_it_is_later(given: int, applies: int) -> None:
    """Nothing takes effect before somebody has approved it."""
    topics = Topics()
    topics.send(RULE | {"effective": iso_text(given * SECOND)})
    assert topics.send(APPROVAL)["effective"] == iso_text(applies * SECOND)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"author": "ann"}, "ann is the author of version 1, and nobody approves a version of their own"),
        ({"author": " ANN "}, "is the author of version 1"),
        ({"author": "\uff41\uff4e\uff4e"}, "is the author of version 1"),
        ({"author": None}, "author: is missing"),
        ({"author": "  "}, "author: is missing"),
        ({"author": ["bob"]}, "author: is not a line of text"),
        ({"author": "ann\u200b"}, "author: is not a line of text"),
        ({"author": "b" * 101}, "Write at most 100 characters"),
        ({"reason": ""}, "reason: is missing"),
        ({"reason": "a\nb"}, "reason: is not a line of text"),
        ({"version": 2}, "is not a version of the rule. The newest version of large is 1"),
        ({"version": 0}, "is not a version of the rule"),
        ({"version": True}, "is not a version of the rule"),
        ({"version": "1"}, "is not a version of the rule"),
        ({"version": None}, "is not a version of the rule"),
        ({"version": 10**30}, "holds a number beyond 64 bits"),
        ({"rule": "larger"}, "is not a published rule. Did you mean large?"),
        ({"rule": {}}, "is not a published rule"),
        ({"effective": "1970-01-01T00:00:00Z"}, "effective: is not a key of an approval"),
        ({"when": "TRUE"}, "when: is not a key of an approval"),
    ],
)
def test_a_wrong_approval_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    """And a right one may still follow."""
    topics = Topics()
    topics.send(RULE)
    assert reason in topics.refusal(APPROVAL | changes)
    assert topics.send(APPROVAL)["status"] == "ACCEPTED"


def test_all_that_is_wrong_with_an_approval_is_said_at_once() -> None:
    """Version, name and reason."""
    topics = Topics()
    topics.send(RULE)
    assert len(topics.refusal({"control": APPROVE, "rule": "large", "version": 7}).split("is missing")) == 3


def test_what_others_name_is_approved_where_they_can_count_it() -> None:
    """By the versions in force then: the one that no longer named it was declined. Pausing is never in the way."""
    topics, who = Topics(), {"author": "ann", "reason": "a trial"}
    naming = {"id": "many", "stream": "transactions", "group_by": RULE["group_by"], **who}
    counts = naming | {"measures": {"n": {"count": "*", "over": "1h", "over_alerts": ["large"]}}, "when": "n > 1"}
    topics.send(RULE)
    topics.send(APPROVAL)
    topics.send(counts)
    topics.send(APPROVAL | {"rule": "many"})
    topics.send(naming | {"when": "amount > 900"})
    proposed = topics.send(RULE | {"unless": {"within": "1h", "where": "amount < 0"}})
    assert (proposed["status"], proposed["rule_version"]) == ("PROPOSED", 2)
    assert topics.send(DECLINED | {"rule": "many", "version": 2})["status"] == "DECLINED"
    assert "Change or retire rule many first" in topics.refusal(APPROVAL | {"version": 2})
    assert topics.send({"control": "pause", "rule": "many", **who})["status"] == "PROPOSED"
    assert topics.send(APPROVAL | {"rule": "many", "version": 3})["status"] == "ACCEPTED"
    assert topics.send(APPROVAL | {"version": 2})["status"] == "ACCEPTED"
    assert "names 'large', which waits" in topics.refusal({"control": "resume", "rule": "many", **who})


def test_a_version_is_approved_once() -> None:
    """Nor is one approved that needed no approval."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    assert "version: bob approved it. Each version is approved or declined once" in topics.refusal(
        APPROVAL | {"author": "eve"}
    )
    without = Topics(approvals=0)
    without.send(RULE)
    assert "took effect without an approval" in without.refusal(APPROVAL)


def test_only_the_newest_version_is_approved() -> None:
    """What was proposed before it never takes effect."""
    topics = Topics()
    topics.send(RULE)
    topics.send(RULE | {"when": "amount > 200"})
    refusal = topics.refusal(APPROVAL)
    assert "version 2 was published since. Approve version 2" in refusal
    topics.send(APPROVAL | {"version": 2})
    assert [(v.version, v.rule.when) for v in topics.book.ruleset.versions] == [(2, "amount > 200")]
    assert "version 2 was published since. Publish it again" in topics.refusal(APPROVAL)


def test_a_version_that_names_nobody_is_not_even_proposed() -> None:
    """Whom to ask, and who must not approve it, has to be known."""
    topics = Topics()
    for key in ("author", "reason"):
        assert f"{key}: is missing, and approvals are required" in topics.refusal(RULE | {key: " "})
        assert f"{key}: is missing" in topics.refusal({name: text for name, text in RULE.items() if name != key})


def test_a_control_is_a_version_that_needs_approval_as_well() -> None:
    """It repeats the version in force, never a proposal: an approval must not cover more than it says."""
    topics = Topics()
    assert "has no approved version" in topics.refusal(
        topics.send(RULE) and {"control": "resume", "rule": "large", "author": "ann", "reason": "r"}
    )
    topics.send(APPROVAL)
    topics.send(RULE | {"when": "amount > 0"})
    paused = topics.send({"control": "pause", "rule": "large", "author": "ann", "reason": "r"})
    assert (paused["status"], paused["rule"]["when"], paused["rule"]["state"]) == ("PROPOSED", "amount > 100", "paused")
    topics.send(APPROVAL | {"version": 3})
    assert [(v.version, v.rule.when) for v in topics.book.ruleset.versions] == [
        (1, "amount > 100"),
        (3, "amount > 100"),
    ]


def test_a_declined_version_is_never_approved() -> None:
    """The answer says who declined it and why; nothing is in force, and the decline is known by its arrival."""
    topics = Topics()
    topics.send(RULE)
    before = topics.book.ruleset
    answer = topics.send(DECLINED)
    assert (answer["status"], answer["rule_version"], answer["effective"]) == ("DECLINED", 1, None)
    assert (answer["declined_by"], answer["decline_reason"]) == ("eve", "too many alerts")
    assert answer["reasons"] == ["eve declined it: too many alerts"]
    assert "version: eve declined it. Publish it again" in topics.refusal(APPROVAL)
    assert "version: eve declined it" in topics.refusal(DECLINED)
    assert topics.book.ruleset is before
    assert (topics.book.declined, topics.book.answered) == ({("large", 1): SECOND}, {})


def test_its_author_withdraws_a_version() -> None:
    """A decline changes nothing that is in force: it needs nobody else."""
    topics = Topics()
    topics.send(RULE)
    assert topics.send(DECLINED | {"author": "ann"})["status"] == "DECLINED"


def test_a_declined_version_is_proposed_again_by_publishing_it() -> None:
    """As a version of its own; what is in force stays published, and publishing that makes none."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    stricter = RULE | {"when": "amount > 200"}
    topics.send(stricter)
    topics.send(DECLINED | {"version": 2})
    repeated = topics.send(RULE)
    assert (repeated["status"], repeated["rule_version"]) == ("ACCEPTED", 1)
    again = topics.send(stricter)
    assert (again["status"], again["rule_version"]) == ("PROPOSED", 3)
    assert "eve declined it. Version 3 waits for approval" in topics.refusal(APPROVAL | {"version": 2})
    assert topics.send(APPROVAL | {"version": 3})["status"] == "ACCEPTED"
    assert [version.version for version in topics.book.ruleset.versions] == [1, 3]


def test_a_version_that_was_overtaken_before_a_decline_is_proposed_again() -> None:
    """Publishing it repeats nothing that waits or is in force."""
    topics = Topics()
    topics.send(RULE)
    topics.send(RULE | {"when": "amount > 200"})
    topics.send(DECLINED | {"version": 2})
    again = topics.send(RULE)
    assert (again["status"], again["rule_version"]) == ("PROPOSED", 3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"author": " "}, "author: is missing. Name who declines it, and why"),
        ({"reason": None}, "reason: is missing"),
        ({"version": 2}, "is not a version of the rule"),
        ({"version": None}, "is not a version of the rule"),
        ({"rule": "larg"}, "is not a published rule. Did you mean large?"),
        ({"effective": iso_text(0)}, "effective: is not a key of a decline"),
    ],
)
def test_what_is_no_decline_declines_nothing(changes: dict[str, Any], reason: str) -> None:
    """It is answered with the reason, and the version goes on waiting."""
    topics = Topics()
    topics.send(RULE)
    assert reason in topics.refusal(DECLINED | changes)
    assert topics.send(APPROVAL)["status"] == "ACCEPTED"


def test_what_is_in_force_or_overtaken_cannot_be_declined() -> None:
    """Whichever message came first counts."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    assert "version: bob approved it. Each version is approved or declined once" in topics.refusal(DECLINED)
    topics.send(RULE | {"when": "amount > 200"})
    topics.send(RULE | {"when": "amount > 300"})
    assert "version 3 was published since. Decline version 3" in topics.refusal(DECLINED | {"version": 2})
    free = Topics(approvals=0)
    free.send(RULE)
    assert "took effect without an approval" in free.refusal(DECLINED)


def test_a_rule_may_name_another_of_which_a_change_was_declined() -> None:
    """It counts the version in force, and no proposal stands in the way."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    topics.send(RULE | {"group_by": ["terminal_id"]})
    points = {
        **RULE,
        "id": "points",
        "when": "n > 1",
        "measures": {"n": {"count": "*", "over": "1d", "over_alerts": ["large"]}},
    }
    assert "large" in topics.refusal(points)
    topics.send(DECLINED | {"version": 2})
    assert topics.send(points)["status"] == "PROPOSED"


def test_publishing_a_proposal_again_makes_no_version_and_approves_none() -> None:
    """Also under another name."""
    topics = Topics()
    topics.send(RULE)
    again = topics.send(RULE | {"author": "bob"})
    assert (again["status"], again["rule_version"]) == ("PROPOSED", 1)
    assert "rule" not in again
    assert topics.send(APPROVAL)["status"] == "ACCEPTED"
    repeated = topics.send(RULE)
    assert (repeated["status"], repeated["approver"]) == ("ACCEPTED", "bob")


def test_another_setting_changes_nothing_that_was_answered() -> None:
    """A proposal goes on waiting where approvals are asked for no more, and whatever is in force stays so."""
    topics = Topics(approvals=0)
    topics.send(RULE)
    topics.approvals = 1
    topics.send(RULE | {"when": "amount > 200"})
    topics.approvals = 0
    assert [version.version for version in topics.book.ruleset.versions] == [1]
    assert topics.send(RULE | {"when": "amount > 200"})["status"] == "PROPOSED"
    assert topics.send(APPROVAL | {"version": 2})["status"] == "ACCEPTED"
    assert topics.send(RULE | {"when": "amount > 300"})["status"] == "ACCEPTED"
    assert [version.version for version in topics.book.ruleset.versions] == [1, 2, 3]


def test_an_approved_version_waits_for_its_shuffle_key() -> None:
    """A proposal makes the job add none."""
    topics = Topics()
    topics.send(RULE | {"group_by": ["amount"]})
    before = list(topics.book.shuffle_keys)
    answer = topics.send(APPROVAL)
    assert (answer["status"], answer["effective"], answer["approver"]) == ("ACCEPTED", None, "bob")
    assert len(topics.book.shuffle_keys) == len(before) + 1
    assert [version.rule.id for version in topics.book.waiting] == ["large"]


def test_answers_that_approve_wrongly_are_skipped() -> None:
    """Anybody who may write to rule-status might forge them; a proposal does not become active either."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    proposal, approval = topics.answers
    answer = json.loads(approval.value)
    wrong: list[Mapping[str, Any]] = [
        answer | {"approver": "Ann"},
        answer | {"approver": ""},
        answer | {"approver": 5},
        answer | {"rule_version": 2},
        answer | {"rule": answer["rule"] | {"when": "amount > 0"}},
        {name: value for name, value in answer.items() if name != "approver"},
        {"status": "ACTIVE", "rule_id": "large", "rule_version": 1, "effective": iso_text(0), "reasons": []},
    ]
    book = RuleBook(STREAMS)
    fold(book, proposal)
    for offset, forged in enumerate(wrong, 1):
        assert fold(book, Record(offset, 0, json.dumps(forged).encode())) is None
    assert book.ruleset.versions == ()
    assert book.skipped == len(wrong)
    assert fold(book, Record(99, 0, approval.value)) is not None
    assert book.ruleset == topics.book.ruleset


def test_answers_that_decline_wrongly_are_skipped() -> None:
    """Of a version that is in force, or is none, or by nobody that has a name."""
    topics = Topics()
    topics.send(RULE)
    topics.send(DECLINED)
    proposal, decline = topics.answers
    answer = json.loads(decline.value)
    wrong: list[Mapping[str, Any]] = [
        answer | {"rule_version": 2},
        answer | {"rule_id": "other"},
        answer | {"declined_by": 5},
        {name: value for name, value in answer.items() if name != "decline_reason"},
    ]
    book = RuleBook(STREAMS)
    fold(book, proposal)
    for offset, forged in enumerate(wrong, 1):
        assert fold(book, Record(offset, 0, json.dumps(forged).encode())) is None
    assert book.skipped == len(wrong)
    assert fold(book, Record(99, SECOND, decline.value)) is not None
    assert (book.every, book.declined) == (topics.book.every, topics.book.declined)
    assert fold(book, Record(100, SECOND, json.dumps(answer | {"message": "rules-0-7"}).encode())) is None


def test_the_lake_has_both_names_and_reasons() -> None:
    """As columns of the answers, beside the rule."""
    topics = Topics()
    topics.send(RULE)
    topics.send(APPROVAL)
    row = JsonReader(RULE_STATUS).row(topics.answers[1].value)
    assert (row["approver"], row["approval_reason"]) == ("bob", "looked at a week of it")
    assert json.loads(row["rule"])["author"] == "ann"
    topics.send(RULE | {"when": "amount > 200"})
    topics.send(DECLINED | {"version": 2})
    row = JsonReader(RULE_STATUS).row(topics.answers[3].value)
    assert (row["status"], row["declined_by"], row["decline_reason"]) == ("DECLINED", "eve", "too many alerts")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("ann", "Ann", True), ("ann  lee", " Ann Lee", True), ("straße", "STRASSE", True), ("ann", "anna", False)],
)
def test_names_of_one_person(one: str, other: str, same: bool) -> None:
    """However they are written."""
    assert same_person(one, other) is same


PEOPLE = ("ann", "Ann", "bob", "eve", None)
_rules = st.fixed_dictionaries(
    {
        "id": st.sampled_from(("a", "b")),
        "when": st.sampled_from(("amount > 1", "amount > 2", "amount >")),
        "state": st.sampled_from(("active", "paused")),
        "author": st.sampled_from(PEOPLE),
    },
    optional={"effective": st.sampled_from((3, 30)).map(lambda at: iso_text(at * SECOND))},
).map(lambda rule: {"stream": "transactions", "group_by": ["customer_id"], "reason": "r", **rule})
_named = {"rule": st.sampled_from(("a", "b", "c")), "author": st.sampled_from(PEOPLE), "reason": st.just("r")}
_controls = st.fixed_dictionaries({"control": st.sampled_from(sorted(CONTROLS)), **_named})
_approvals = st.fixed_dictionaries({"control": st.just(APPROVE), "version": st.integers(0, 5), **_named})
_declines = st.fixed_dictionaries({"control": st.just(DECLINE), "version": st.integers(0, 5), **_named})
_messages = st.lists(st.one_of(_rules, _controls, _approvals, _approvals, _declines), max_size=25)


class Reference:
    """What has to come of the messages: of each rule its versions, with who approved or declined each."""

    def __init__(self) -> None:
        self.versions: dict[str, list[dict[str, Any]]] = {}

    def take(self, message: Mapping[str, Any], at: int, approvals: int) -> None:
        """The next message."""
        control, author = message.get("control"), message["author"]
        known = self.versions.setdefault(message["rule" if control else "id"], [])
        if control == APPROVE:
            newest = known[-1] if known else None
            fits = newest is not None and message["version"] == len(known) and self.waits(newest)
            if newest is not None and fits and author is not None and author.lower() != newest["author"].lower():
                given = newest["rule"].get("effective")
                later = parse_timestamp(given, zone_required=True) if given else None
                newest |= {"in_force": max(at + DELAY, later or 0), "approver": author}
            return
        if control == DECLINE:
            if known and message["version"] == len(known) and self.waits(known[-1]) and author is not None:
                known[-1]["decliner"] = author
            return
        rule = {key: value for key, value in message.items() if key not in ("author", "reason")}
        if control is not None:
            in_force = [version for version in known if version["in_force"] is not None]
            if not in_force:
                return
            again = {key: value for key, value in in_force[-1]["rule"].items() if key != "effective"}
            rule = again | {"state": CONTROLS[control].value}
        counted = known
        if known and known[-1]["decliner"] is not None:
            counted = [version for version in known if version["in_force"] is not None]
        if rule["when"] == "amount >" or (counted and counted[-1]["rule"] == rule):
            return
        if approvals and author is None:
            return
        given = parse_timestamp(rule["effective"], zone_required=True) if "effective" in rule else None
        effective = None if approvals else at + DELAY if given is None else given
        known.append({"author": author, "rule": rule, "in_force": effective, "approver": None, "decliner": None})

    @staticmethod
    def waits(version: Mapping[str, Any]) -> bool:
        """Whether a version can be approved, or declined."""
        return version["in_force"] is None and version["decliner"] is None


@settings(max_examples=300, deadline=None)
@given(_messages, st.lists(st.sampled_from((0, 1, 1)), min_size=25, max_size=25))
def test_versions_are_in_force_as_the_reference_has_it(messages: list[dict[str, Any]], approvals: list[int]) -> None:
    """Whatever is sent, and however often the setting changes; whoever folds the answers comes to the same."""
    topics, reference = Topics(), Reference()
    for number, (message, needed) in enumerate(zip(messages, approvals, strict=False)):
        topics.approvals = needed
        topics.send(message)
        reference.take(message, number * SECOND, needed)
    expected = {
        (rule_id, number): (
            version["author"],
            version["rule"]["when"],
            version["in_force"],
            version["approver"],
            version["decliner"],
        )
        for rule_id, versions in reference.versions.items()
        for number, version in enumerate(versions, 1)
    }
    got = {
        (v.rule.id, v.version): (
            v.rule.author,
            v.rule.when,
            None if v.is_proposed else v.effective,
            v.approval and v.approval.author,
            v.decline and v.decline.author,
        )
        for v in topics.book.every
    }
    assert got == expected
    in_force = {(v.rule.id, v.version) for v in topics.book.ruleset.versions}
    assert in_force == {name for name, version in expected.items() if version[2] is not None}
    folded = RuleBook(STREAMS)
    for answer in topics.answers:
        fold(folded, answer)
    for name in ("ruleset", "every", "answered", "declined", "published"):
        assert getattr(folded, name) == getattr(topics.book, name)
