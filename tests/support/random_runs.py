"""Random runs of the job: partitions read unevenly, clocks, restarts with other settings, rules that come meanwhile.

A job evaluates one stream or two, each with its own fields, partitions, clock and lateness; their rules come on one
topic, and share ids now and then. The first is a union in a quarter of the runs.

Records arrive at one time and are read at another. A batch takes all rule messages that have arrived and some unread
events of each partition, in their order; its clock is honest (no event read later arrived before it) or, now and then,
ahead. A third of the runs have a table, whose rows are set and removed meanwhile, and back-dated; a batch takes all
changes that have arrived, and its events see those that are known then. Some settings ask for approvals, which then
follow most rules, though not always of the right version. `Answers` says in a few lines what the job must answer, once
and for all, when it reads a rule message.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from nightjar.rules.durations import format_duration
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.publishing import CONTROLS
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.rules.unions import STREAM_NUMBER, event_of_union
from tests.support.histories import (
    OVERS,
    SECOND,
    SHARED,
    asking,
    declared,
    event,
    event_values,
    kinds_of,
    rules,
    tiebreakers,
    united,
)
from tests.support.random_cases import Happening, History, as_listed, rows_of, table_changes
from tests.support.reference import NOT_YET, Change, Event, Passed, Version, is_refused

AUTHOR, APPROVER = "ann", "bob"
THINGS = "things"
ELSEWHERE = "elsewhere"  # another stream, which is declared from some restart on, if ever
STREAMS = (THINGS, ELSEWHERE)
_FOREIGN = streams_from_mapping(
    {
        ELSEWHERE: {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {"id": "string", "at": "timestamp", "who": "string"},
        }
    },
    "tests",
)[ELSEWHERE]


@dataclass(frozen=True)
class Published:
    """A record of the rules topic. effective: where it says so, µs; version: what its rule is to the reference."""

    offset: int
    arrival: int
    written: dict[str, Any]
    effective: int | None = None
    version: Version | None = None


@dataclass(frozen=True)
class Listed:
    """A record of the tables topic."""

    offset: int
    arrival: int
    change: Change


@dataclass(frozen=True)
class Restart:
    """The job starts with these settings (µs); what was in memory is lost. elsewhere: the `allowed_lateness` of
    ELSEWHERE, None where it is not declared; approvals: that a version needs, 0 or 1."""

    activation_delay: int
    allowed_lateness: int
    elsewhere: int | None = None
    approvals: int = 0


@dataclass(frozen=True)
class Batch:
    """What one batch reads. at: the present; clock: µs, None where the batch has none.

    again: the first attempt at it fails once all is done, and another worker repeats it. history: what the driver has
    done before it for versions that wait for history: nothing, an `export`, the `answer` that they take effect, `both`.
    elsewhere, elsewhere_clock: the events and the clock of ELSEWHERE. changes: of the table; events have what they see
    of it, which is what batches have read so far.
    """

    at: int
    messages: list[Published]
    events: list[Event]
    clock: int | None
    again: bool
    history: str = ""
    elsewhere: list[Event] = field(default_factory=list)
    elsewhere_clock: int | None = None
    changes: list[Listed] = field(default_factory=list)

    def of(self, stream: str) -> Batch:
        """With the events and the clock of a stream as its own."""
        return replace(self, events=self.elsewhere, clock=self.elsewhere_clock) if stream == ELSEWHERE else self


@dataclass(frozen=True)
class Run:
    """The steps of a job over a stream, the first a Restart. Events have `arrival`, `partition` and `offset`. Rules may
    group by other fields than entities: for these the job makes shuffle keys.

    buckets: of each shuffle key. primes: whether versions whose windows reach back before the state wait for their
    history. beside: ELSEWHERE, where the job evaluates it too, which no restart undeclares then: a checkpoint refuses
    that; None: nothing is sent to it, whether it is declared or not.
    """

    declared: Stream
    steps: list[Restart | Batch]
    buckets: int = 1
    primes: bool = False
    beside: Stream | None = None

    @functools.cached_property
    def events(self) -> list[Event]:
        """Those of the stream that is declared from the first, in the order of arrival."""
        return self.events_of(self.declared.name)

    def events_of(self, stream: str) -> list[Event]:
        """All events of a stream, in the order of arrival."""
        read = [each for step in self.steps if isinstance(step, Batch) for each in step.of(stream).events]
        return sorted(read, key=place)

    @functools.cached_property
    def changes(self) -> list[Listed]:
        """All changes of the table, in order."""
        return [each for step in self.steps if isinstance(step, Batch) for each in step.changes]

    @property
    def rows(self) -> TableRows | None:
        """The rows of the table after all changes; None if there is none."""
        return rows_of(self.declared, ((each.arrival, each.change) for each in self.changes))

    def as_arrived(self, event: Event) -> Event:
        """An event of `declared` with what the table had at its time by the changes that had arrived when it did."""
        changes = [each.change for each in self.changes if each.arrival <= event["arrival"]]
        return as_listed(self.declared, event, changes)

    def true_events_of(self, stream: str) -> list[Event]:
        """The events of a stream with what the table had at each one's time, by all changes."""
        changes = [each.change for each in self.changes]
        of = self.declared if stream == self.declared.name else None
        return [each if of is None else as_listed(of, each, changes) for each in self.events_of(stream)]

    def streams(self, restart: Restart) -> dict[str, Stream]:
        """What is declared while the job runs so."""
        declared = {self.declared.name: replace(self.declared, allowed_lateness=restart.allowed_lateness)}
        if restart.elsewhere is not None:
            declared[ELSEWHERE] = replace(self.beside or _FOREIGN, allowed_lateness=restart.elsewhere)
        return declared

    def evaluates(self, stream: str) -> bool:
        """Whether the job has buckets for a stream that is declared."""
        return stream == self.declared.name or self.beside is not None


def script(run: Run, complaints: Iterable[str]) -> str:
    """A Python program that plays the run, at the top of the tree."""
    beside = "None" if run.beside is None else _written(run.beside)
    lines = [
        *(f"# {line}" for line in complaints),
        "from decimal import Decimal  # noqa: F401",
        "from tests.support.histories import asking, declared, united  # noqa: F401",
        "from tests.support.random_runs import Batch, Listed, Published, Restart, Run  # noqa: F401",
        "from tests.support.stream_host import played",
        f"stream = {_written(run.declared)}",
        f"beside = {beside}",
        "steps = [",
    ]
    for step in run.steps:
        messages = step.messages if isinstance(step, Batch) else []
        plain = [replace(message, version=None) for message in messages]
        lines.append(f"    {replace(step, messages=plain) if messages else step!r},")
    made = f"Run(stream, steps, {run.buckets}, {run.primes}, beside)"
    return "\n".join([*lines, "]", f"print(*played({made}), sep='\\n')", ""])


def _written(stream: Stream) -> str:
    if stream.members:
        plain, tie = _written(replace(stream.members[0].stream, name=stream.name)), stream.tiebreaker
        written = f"united({plain}, {None if tie == STREAM_NUMBER else tie!r})"
        return f"asking({written})" if stream.tables else written
    made = {name: getattr(stream, name) for name in ("name", "event_id", "event_time", "entities", "tiebreaker")}
    made |= {name: format_duration(getattr(stream, name)) for name in ("allowed_lateness", "max_future_skew")}
    fields = tuple(name for name in stream.fields if name not in (stream.event_id, stream.event_time))
    written = f"declared({fields!r}, **{made!r})"
    return f"asking({written})" if stream.tables else written


def as_history(run: Run) -> History | None:
    """The same as a case can express it; None where records wait to be read, settings change, several streams are
    evaluated, or a union."""
    if run.beside is not None or run.declared.members:
        return None
    starts = [step for step in run.steps if isinstance(step, Restart)]
    answers, happenings, started = Answers(), [], 0
    for step in run.steps:
        if isinstance(step, Restart):
            started += 1
            continue
        arrivals = {each["arrival"] for each in step.events}
        arrivals |= {each.arrival for each in (*step.messages, *step.changes)}
        if arrivals - {step.at} or any(message.written.get("stream") == ELSEWHERE for message in step.messages):
            return None
        if any(start.approvals for start in starts):
            return None
        for message in step.messages:
            answers.take(message, starts[0])
        crash = started > 1 or step.again
        changes = [each.change for each in step.changes]
        messages = [message.written for message in step.messages]
        happenings.append(Happening(step.at, crash, messages, step.events, changes))
        started = 1
    if run.primes or any(not {*v.group_by} & {*run.declared.entities} for v in answers.versions):
        return None
    if len({replace(start, elsewhere=None) for start in starts}) > 1:
        return None
    stream = run.streams(starts[0])[run.declared.name]
    return History(stream, starts[0].activation_delay, happenings, answers.versions, [], set(), Passed())


def place(event: Event) -> tuple[int, int, int]:
    """Where an event stands among all arrivals."""
    return event["arrival"], event["partition"], event["offset"]


@dataclass(frozen=True)
class Answer:
    """What the job says of a message. version: None where it is refused."""

    status: str
    rule_id: str
    version: int | None = None
    effective: int | None = None

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Answer:
        """An answer of the job to a message."""
        effective = record["effective"]
        when = None if effective is None else parse_timestamp(effective, zone_required=True)
        return cls(record["status"], record["rule_id"], record["rule_version"], when)


@dataclass(eq=False)
class _Numbered:
    """A version of a rule, in force or not. written: without who and why; effective: its own, µs."""

    written: dict[str, Any]
    version: Version | None
    effective: int | None
    in_force: int | None = None
    is_declined: bool = False

    @property
    def waits(self) -> bool:
        """Whether it can be approved, or declined, while it is the newest."""
        return self.in_force is None and not self.is_declined


def _latest(known: Sequence[_Numbered]) -> _Numbered | None:
    """What a rule's next version must differ from: the newest, or that in force where the newest was declined."""
    if known and not known[-1].is_declined:
        return known[-1]
    return _last_in_force(known)


def _last_in_force(known: Sequence[_Numbered]) -> _Numbered | None:
    """A rule's last version that is more than proposed; None if there is none."""
    return next((each for each in reversed(known) if each.in_force is not None), None)


@dataclass
class Answers:
    """The versions after the messages answered so far. What has been answered is never decided again.

    versions: in force, of the streams that are evaluated; arrivals: µs, by rule id and version: of the message by which
    each came into force.
    """

    versions: list[Version] = field(default_factory=list)
    arrivals: dict[tuple[str, int], int] = field(default_factory=dict)
    _of_rule: dict[str, list[_Numbered]] = field(default_factory=dict)

    def of(self, stream: str) -> list[Version]:
        """The versions in force on a stream, which all versions of a rule share."""
        return [v for v in self.versions if self._of_rule[v.rule_id][0].written["stream"] == stream]

    def take(self, message: Published, restart: Restart) -> Answer:
        """Answer a message by the settings of the day."""
        written, version, effective = dict(message.written), message.version, message.effective
        rule_id = written["rule" if "control" in written else "id"]
        author, _ = written.pop("author"), written.pop("reason")
        known, is_checked = self._of_rule.get(rule_id, []), True
        if written.get("control") == "approve":
            return self._approve(rule_id, author == AUTHOR, written["version"], message.arrival, restart)
        if written.get("control") == "decline":
            return self._decline(rule_id, written["version"])
        if "control" in written:
            if (last := _last_in_force(known)) is None:
                return Answer("REJECTED", rule_id)
            state = CONTROLS[written["control"]]
            is_checked = last.version is not None and state.is_evaluated and not last.version.active
            if last.version is not None:
                ended, is_shadow = written["control"] == "retire", written["control"] == "shadow"
                version = replace(last.version, active=state.is_evaluated, retired=ended, shadow=is_shadow)
            given = {key: written[key] for key in ("effective",) if key in written}
            kept = {key: value for key, value in last.written.items() if key != "effective"}
            written = kept | {"state": state.value} | given
        if (written["stream"] == ELSEWHERE and restart.elsewhere is None) or (
            known and known[0].written["stream"] != written["stream"]
        ):
            return Answer("REJECTED", rule_id)
        if (last := _latest(known)) is None or last.written != written:
            beside = [each for each in self._of_rule.values() if each[0].written["stream"] == written["stream"]]
            others = [each.version for each in map(_latest, beside) if each is not None]
            newest = {v.rule_id: v for v in others if v is not None}
            if is_checked and version is not None and is_refused(version, newest):
                return Answer("REJECTED", rule_id)
            known = self._of_rule.setdefault(rule_id, [])
            known.append(_Numbered(written, version, effective))
            if restart.approvals == 0:
                at = message.arrival + restart.activation_delay if effective is None else effective
                self._put_in_force(rule_id, at, message.arrival)
            last = known[-1]
        waits = last.in_force == NOT_YET
        status = "PROPOSED" if last.in_force is None else "ACCEPTED"
        return Answer(status, rule_id, 1 + known.index(last), None if waits else last.in_force)

    def wait(self, rule_id: str) -> None:
        """The newest version, which a message has just put in force, waits for its history."""
        self._takes_effect(rule_id, len(self._of_rule[rule_id]), NOT_YET)

    def activate(self, rule_id: str, number: int, effective: int, at: int) -> None:
        """A version that waited takes effect. at: arrival of that answer."""
        self._takes_effect(rule_id, number, effective)
        self.arrivals[rule_id, number] = at

    def _takes_effect(self, rule_id: str, number: int, effective: int) -> None:
        self._of_rule[rule_id][number - 1].in_force = effective
        self.versions = [
            replace(v, effective=effective) if (v.rule_id, v.version) == (rule_id, number) else v for v in self.versions
        ]

    def _approve(self, rule_id: str, of_author: bool, number: int, arrival: int, restart: Restart) -> Answer:
        """Answer an approval: of the newest version, while it waits, by somebody else than its author."""
        known = self._of_rule.get(rule_id, [])
        if of_author or not known or number != len(known) or not known[-1].waits:
            return Answer("REJECTED", rule_id)
        if known[-1].written["stream"] == ELSEWHERE and restart.elsewhere is None:
            return Answer("REJECTED", rule_id)
        version = known[-1].version
        if version is not None and version.active and is_refused(version, self._in_force(), all_known=False):
            return Answer("REJECTED", rule_id)
        self._put_in_force(rule_id, max(arrival + restart.activation_delay, known[-1].effective or 0), arrival)
        return Answer("ACCEPTED", rule_id, number, known[-1].in_force)

    def _in_force(self) -> dict[str, Version]:
        """The last version of each rule that is more than proposed."""
        last = {rule_id: _last_in_force(known) for rule_id, known in self._of_rule.items()}
        return {name: each.version for name, each in last.items() if each is not None and each.version is not None}

    def _decline(self, rule_id: str, number: int) -> Answer:
        """Answer a decline: of the newest version, while it waits."""
        known = self._of_rule.get(rule_id, [])
        if not known or number != len(known) or not known[-1].waits:
            return Answer("REJECTED", rule_id)
        known[-1].is_declined = True
        return Answer("DECLINED", rule_id, number)

    def _put_in_force(self, rule_id: str, effective: int, arrival: int) -> None:
        number, newest = len(self._of_rule[rule_id]), self._of_rule[rule_id][-1]
        newest.in_force, self.arrivals[rule_id, number] = effective, arrival
        if newest.version is not None:
            self.versions.append(replace(newest.version, version=number, effective=effective))


# Seconds from one happening to the next: within a window, beyond lateness, beyond every window.
_PAUSES = st.sampled_from((1, 0, 1, 2, 5, 20, 20, 150))
_LATENESS = st.sampled_from((10 * SECOND, 2 * SECOND, 60 * SECOND, 0))
_DELAYS = st.sampled_from((0, 5 * SECOND, 20 * SECOND))
_APPROVALS = st.sampled_from((0, 0, 0, 1))
# How long windows are where versions are primed: of the first rules, and of later ones.
_NARROW, _WIDE = ("1s", "3s"), ("8s", "30s", "2m", "10m")


@st.composite
def runs(draw: st.DrawFn, stream: Stream | None = None, *, keys: bool = True) -> Run:
    """Runs of up to about eighty events, a dozen batches and half a dozen rule messages; of streams of their own, or of
    this one alone.

    keys: whether rules may group by other fields than entities.
    """
    beside = draw(_streams(ELSEWHERE)) if stream is None and draw(st.booleans()) else None
    plain = draw(_streams(THINGS)) if stream is None else stream
    is_union = stream is None and draw(st.integers(0, 3)) == 3
    stream = united(plain, draw(st.sampled_from((None, plain.tiebreaker)))) if is_union else plain
    restart = Restart(draw(_DELAYS), draw(_LATENESS), None, draw(_APPROVALS))
    if beside is not None and draw(st.integers(0, 5)) < 5:
        restart = replace(restart, elsewhere=draw(_LATENESS))
    stream = asking(stream) if draw(st.integers(0, 2)) == 2 else stream
    primes = draw(st.booleans())
    world = _World(draw, stream, plain, beside, keys=keys and draw(st.booleans()))
    steps: list[Restart | Batch] = [restart]
    at = 300 * SECOND
    for number in range(draw(st.integers(2, 14 if primes else 10))):
        at += draw(_PAUSES) * SECOND
        for _ in range(
            draw(st.integers(1 if beside is None else 2, 2)) if number == 0 else draw(st.sampled_from((0, 0, 1, 2)))
        ):
            overs = ((_WIDE if number else _NARROW),) if primes else ()
            world.publish(draw, at, *overs, approvals=restart.approvals)
        world.change(draw, at)
        world.send(draw, at, restart, draw(st.sampled_from((2, 0, 1, 3, 5, 8, 12))))
        if number and draw(st.integers(0, 4)) == 4:
            changed = draw(st.sampled_from(("", "activation_delay", "allowed_lateness", "elsewhere", "approvals")))
            drawn = Restart(draw(_DELAYS), draw(_LATENESS), draw(st.none() | _LATENESS), draw(_APPROVALS))
            if beside is not None and drawn.elsewhere is None:
                drawn = replace(drawn, elsewhere=restart.elsewhere)
            restart = replace(restart, **{changed: getattr(drawn, changed)} if changed else {})
            steps.append(restart)
        for _ in range(draw(st.sampled_from((1, 0, 1, 2)))):
            steps.append(world.read(draw, at, restart))
    steps.append(world.read(draw, at, restart, everything=True))
    return Run(stream, steps, draw(st.sampled_from((1, 1, 2, 3))), primes, beside)


@st.composite
def _streams(draw: st.DrawFn, name: str) -> Stream:
    """Streams with one or two entity fields, by which all rules group, and some others to measure."""
    entities = draw(st.lists(st.sampled_from(SHARED), min_size=1, max_size=2, unique=True))
    numbers = draw(st.lists(st.sampled_from(("amount", "ratio", "number", "fraction")), min_size=1, max_size=2))
    fields = tuple(dict.fromkeys([*entities, *numbers]))
    return declared(
        fields,
        name=name,
        event_id="id",
        event_time="at",
        allowed_lateness="10s",
        max_future_skew="2s",
        entities=tuple(entities),
        tiebreaker=draw(tiebreakers(fields)),
    )


class _Topic:
    """What has been sent to a stream, and what of it has been read."""

    """plain: how its events are drawn, which may then become those of a union."""

    def __init__(self, draw: st.DrawFn, stream: Stream, plain: Stream) -> None:
        partitions = draw(st.sampled_from((2, 1, 3, 4)))
        self.stream, self._plain = stream, plain
        self.made: list[Event] = []
        self._values = draw(event_values(kinds_of(plain)))
        firsts = [member.first_partition for member in stream.members] or [0]
        self._partitions = partitions
        self._unread: dict[int, list[Event]] = {first + at: [] for first in firsts for at in range(partitions)}
        self._sent = dict.fromkeys(self._unread, 0)

    def send(self, draw: st.DrawFn, at: int, allowed_lateness: int) -> None:
        """An event, or a copy of one, to some partition."""
        most = allowed_lateness + draw(st.sampled_from((0, 0, 60))) * SECOND
        made = draw(event(self._plain, at, self.made, most=most, conflicting=True, values=self._values))
        partition = draw(st.integers(0, self._partitions - 1))
        self.made.append(made)
        if members := self.stream.members:  # all events of one id are of one
            member = members[crc32(made[self._plain.event_id].encode()) % len(members)]
            made = {**event_of_union(made, self.stream, member), "arrival": at}
            partition += member.first_partition
        self._unread[partition].append({**made, "partition": partition, "offset": self._sent[partition]})
        self._sent[partition] += 1

    def read(self, draw: st.DrawFn, at: int, *, everything: bool, dishonest: bool) -> tuple[list[Event], int | None]:
        """What the next batch reads, and the clock."""
        events: list[Event] = []
        for number, unread in self._unread.items():
            wanted = len(unread) if everything or not unread else draw(st.integers(0, len(unread)))
            events += unread[:wanted]
            self._unread[number] = unread[wanted:]
        honest = min([at, *(unread[0]["arrival"] for unread in self._unread.values() if unread)])
        behind = draw(st.sampled_from((0, 0, None, 1, 20, -15, -100) if dishonest else (0, 0, None, 1, 20)))
        return events, None if behind is None else honest - behind * SECOND


class _World:
    """What has been published and sent. keys: whether rules may group by other fields than entities."""

    def __init__(self, draw: st.DrawFn, stream: Stream, plain: Stream, beside: Stream | None, *, keys: bool) -> None:
        pairs = ((stream, plain), (beside, beside))
        self._topics = [_Topic(draw, each, of) for each, of in pairs if each is not None and of is not None]
        self._keys = keys
        self._dishonest = draw(st.integers(0, 4)) == 4
        self._messages: list[Published] = []
        self._published = 0
        self._stream = stream
        self._changes: list[Listed] = []  # of which so many have been read
        self._known_changes = 0
        self._known: dict[str, Published] = {}
        self._ruled: set[str] = set()  # streams for which there was a rule
        self._numbers: Counter[str] = Counter()  # of versions, if each message had made one

    def publish(self, draw: st.DrawFn, at: int, overs: tuple[str, ...] = OVERS, *, approvals: int) -> None:
        """A rule, one that has been published before, or a control message; often with its approval. overs: how long
        windows may be."""
        count = len(self._messages)
        self._publish(draw, at, overs, first=not any(topic.made for topic in self._topics))
        for message in self._messages[count:]:
            rule_id = message.written["rule" if "control" in message.written else "id"]
            self._numbers[rule_id] += 1
            if draw(st.sampled_from((True, True, True, False) if approvals else (False,) * 7 + (True,))):
                number = self._numbers[rule_id] - draw(st.sampled_from((0, 0, 0, 0, 1)))
                by = draw(st.sampled_from((*[APPROVER] * 5, AUTHOR)))
                decisions = ["decline", "approve"] if draw(st.sampled_from((False, False, True))) else ["approve"]
                for control in decisions:
                    given = {"control": control, "rule": rule_id, "version": number, "author": by}
                    self._take(Published(0, at, given))

    def _publish(self, draw: st.DrawFn, at: int, overs: tuple[str, ...], *, first: bool) -> None:
        leads = (None, None, -1000, -1000) if first else (None, None, 0, 5, 20, -5, -60, -1000)
        lead = draw(st.sampled_from(leads))
        effective = None if lead is None else at + lead * SECOND
        kind = draw(st.sampled_from(("rule", "rule", "control", "control", "again", "elsewhere")))
        is_foreign = kind == "elsewhere" and len(self._topics) == 1
        if first and not is_foreign:
            kind = "rule"
        known = sorted(self._known)
        if kind in ("control", "again") and known:
            rule_id = draw(st.sampled_from(known))
            if kind == "again":
                self._take(replace(self._known[rule_id], arrival=at))
                return
            controls = ("retire", "pause", "resume", "resume", "shadow", *["retire"] * 3 * self._keys)
            control = draw(st.sampled_from(controls))
            given = {} if effective is None else {"effective": iso_text(effective)}
            self._take(Published(0, at, {"control": control, "rule": rule_id, **given}, effective))
            return
        without = [topic for topic in self._topics if topic.stream.name not in self._ruled]
        stream = draw(st.sampled_from(without or self._topics)).stream
        self._ruled.add(stream.name)
        # a rule of one stream cannot be published on the other, which is tried now and then
        rule_id = draw(st.sampled_from(("one", "two") if stream.name == THINGS else ("three", "four", "one")))
        if is_foreign:
            # as a control message would write it out, so that one that changes nothing is known to repeat it
            written = {"id": rule_id, "stream": ELSEWHERE, "state": "active", "group_by": ["who"], "when": "TRUE"}
            self._take(Published(0, at, written))
            return
        of_stream = (each.version for each in self._known.values() if each.written["stream"] == stream.name)
        named = [version for version in of_stream if version is not None]
        alerting = tuple(version.rule_id for version in named if not version.allows)
        naming = tuple(version.rule_id for version in named if not (version.over_alerts or version.allows))
        if naming and stream.name == THINGS:
            rule_id = draw(st.sampled_from((rule_id, rule_id, "sum", "trust")))
        naming = (*naming, "tag:a", "tag:b") if rule_id == "sum" else ()
        allowing = (*alerting, "tag:a", "*") if rule_id == "trust" else ()
        is_beside = bool(named) and (bool(naming or allowing) or draw(st.booleans()))
        of_group = draw(st.sampled_from(named)).group_by if is_beside else None
        stepped = overs == _WIDE and not (naming or allowing) and draw(st.booleans())
        looking = {"naming": naming, "allowing": allowing, "of_group": of_group}
        written, version = draw(rules(rule_id, stream, effective=effective, overs=overs, stepped=stepped, **looking))
        # one of another rule is one that the job can have
        if of_group is None and self._keys and draw(st.sampled_from((True, True, False))):
            group_by = [name for name in version.group_by if name not in stream.entities]
            version.group_by, written["group_by"] = tuple(group_by), group_by
        elif of_group is None and not set(version.group_by) & set(stream.entities):
            version.group_by = (*version.group_by[:1], stream.entities[0])
            written["group_by"] = list(version.group_by)
        message = Published(0, at, written, effective, version)
        self._known[rule_id] = message
        self._take(message)

    def _take(self, message: Published) -> None:
        written = {"author": AUTHOR, "reason": "drawn"} | message.written
        self._messages.append(replace(message, offset=self._published, written=written))
        self._published += 1

    def change(self, draw: st.DrawFn, at: int) -> None:
        """Some changes of the table, if there is one."""
        for _ in range(draw(st.sampled_from((1, 0, 1, 2))) if self._stream.tables else 0):
            self._changes.append(Listed(len(self._changes), at, draw(table_changes(self._stream, at))))

    def send(self, draw: st.DrawFn, at: int, restart: Restart, count: int) -> None:
        """So many events to one of the streams."""
        topic = draw(st.sampled_from(self._topics))
        lateness = (restart.elsewhere or 0) if topic.stream.name == ELSEWHERE else restart.allowed_lateness
        for _ in range(count):
            topic.send(draw, at, lateness)

    def read(self, draw: st.DrawFn, at: int, restart: Restart, *, everything: bool = False) -> Batch:
        """The next batch, at that time."""
        declared = self._topics if restart.elsewhere is not None else self._topics[:1]
        of = [topic.read(draw, at, everything=everything, dishonest=self._dishonest) for topic in declared]
        messages, self._messages = self._messages, []
        changes, self._known_changes = self._changes[self._known_changes :], len(self._changes)
        known = [each.change for each in self._changes]
        of[0] = [as_listed(self._stream, each, known) for each in of[0][0]], of[0][1]
        history = draw(st.sampled_from(("both", "answer", "export", "export", "")))
        beside = of[1] if len(of) > 1 else ([], None)
        return Batch(at, messages, *of[0], draw(st.integers(0, 4)) == 4, history, *beside, changes)
