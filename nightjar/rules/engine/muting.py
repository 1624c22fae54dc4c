"""Purpose: which alerts of a rule with `mute` are muted (S10.4), in the stream and in the truth alike.

How it works: the alerts of one rule version, group and UTC date are a chain in the order of S1.1. Its first is unmuted;
it mutes those within `mute` after it, the next one is unmuted again, and so on. Adding or removing an alert changes
those that follow, up to the next one that is unmuted before and after; only these are examined.

An alert that an allow rule silences (S24) is muted as it comes, and in no chain.

What it does not do: look at events. A chain holds the alerts that are not retracted, so it outlives their events, and
is restored from announcements alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.allowing import MEMBER
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.engine.kernels.texts import hash_bytes
from nightjar.rules.timestamps import from_microseconds, microseconds

_DAY = MICROSECONDS["d"]
_READ = ["rule_id", "rule_version", "group", "event_id", "event_time", "mute", "revision", "muted"]
# Above this many, sorting a chain is faster than inserting one by one.
_MANY = 16
# With fewer alerts than this it is not worth searching for alerts to drop.
_FLOOR = 4096


class Place(NamedTuple):
    """Where an alert is in its chain: the order of its event (S1.1)."""

    time: int
    hashed: int
    event_id: bytes


class Name(NamedTuple):
    """A chain: the rule version, the group as alerts write it, and the date in days since 1970."""

    rule_id: str
    rule_version: int
    group: str
    date: int


class Flip(NamedTuple):
    """An alert, not retracted, that has become muted or unmuted."""

    chain: Name
    place: Place
    muted: bool


def place_of(time: int, event_id: str) -> Place:
    """Where the event is in the order of S1.1. time: µs."""
    text = event_id.encode()
    return Place(time, int(hash_bytes(np.array(bytearray(text), np.uint8), 0, len(text))), text)


class Chain:
    """The alerts of one chain that are not retracted. mute: µs."""

    def __init__(self, mute: int, places: Iterable[Place] = (), unmuted: Iterable[Place] = ()) -> None:
        self.mute = mute
        self._places = sorted(places)
        self._unmuted = sorted(unmuted)

    def holds(self, place: Place) -> bool:
        """Whether the chain has an alert there."""
        return _holds(self._places, place)

    def muted(self, place: Place) -> bool:
        """Whether the alert there is muted."""
        return not _holds(self._unmuted, place)

    def change(self, coming: Iterable[Place], going: Iterable[Place]) -> set[Place]:
        """Add and remove alerts; returns the places where an alert has become muted or unmuted.

        Unmuted alerts that are added or removed are among these.
        """
        coming = [*coming]
        changed = sorted([*coming, *going])
        if len(coming) > _MANY:
            self._places = sorted([*self._places, *coming])
        else:
            for place in coming:
                insort(self._places, place)
        for place in going:
            del self._places[bisect_left(self._places, place)]
        if not changed:
            return set()
        begin = bisect_left(self._unmuted, changed[0])
        at = bisect_left(self._places, changed[0])
        unmuted: list[Place] = []
        last = self._unmuted[begin - 1] if begin else None
        end = len(self._unmuted)
        while True:
            if last is not None:
                at = max(at, bisect_right(self._places, last.time + self.mute, key=lambda place: place.time))
            if at == len(self._places):
                break
            last = self._places[at]
            if last > changed[-1] and _holds(self._unmuted, last):  # from here on nothing changes
                end = bisect_left(self._unmuted, last)
                break
            unmuted.append(last)
        before = self._unmuted[begin:end]
        self._unmuted[begin:end] = unmuted
        return set(before) ^ set(unmuted)


def _holds(places: list[Place], place: Place) -> bool:
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


class Muting:
    """The chains of the stream's alerts that can still mute others.

    Alerts whose event is settled keep their flags: no alert can be added before them.
    """

    def __init__(self) -> None:
        self._chains: dict[Name, Chain] = {}
        # of each announced alert its revision, whether it is retracted or silenced, and whether announced as muted
        self._announced: dict[Name, dict[Place, tuple[int, bool, bool]]] = {}
        self._owed: set[tuple[Name, Place]] = set()
        self._count = 0
        self._look_again_at = _FLOOR

    def __bool__(self) -> bool:
        """Whether there is any alert that can mute others."""
        return bool(self._announced)

    def take(
        self, table: pa.Table, settled: int, waits: Mapping[tuple[str, int], int] = MappingProxyType({})
    ) -> tuple[pa.Array, list[Flip]]:
        """Take new announcements (LEDGER_SCHEMA).

        Returns which of them are muted (the `muted` of retractions and of silenced ones is kept), and which other
        alerts at events from `settled` (µs) on have to be announced again, because they have become muted or unmuted.
        waits: how long before `settled` (µs) those of some rule versions are still announced.
        """
        flags: list[bool] = table.column("muted").to_pylist()
        made = _alerts(table)
        coming: dict[Name, set[Place]] = {}
        going: dict[Name, set[Place]] = {}
        for each in made:
            chain = self._chains.setdefault(each.chain, Chain(each.mute))
            if each.gone != chain.holds(each.place):
                continue
            (going if each.gone else coming).setdefault(each.chain, set()).add(each.place)
        for name in {**coming, **going}:
            changed = self._chains[name].change(coming.get(name, ()), going.get(name, ()))
            self._owed.update((name, place) for place in changed)
        for each in made:
            if not each.gone:
                flags[each.row] = self._chains[each.chain].muted(each.place)
            self._announce(each.chain, each.place, each.revision, gone=each.gone, muted=flags[each.row])
        flips = [
            Flip(name, place, not muted)
            for name, place in sorted(self._owed)
            for _, gone, muted in (self._announced[name][place],)
            if not gone
            and muted != self._chains[name].muted(place)
            and place.time >= settled - waits.get((name.rule_id, name.rule_version), 0)
        ]
        self._owed = {(flip.chain, flip.place) for flip in flips}
        return pa.array(flags, pa.bool_()), flips

    def announced(self, flip: Flip, revision: int) -> None:
        """Record that the flip is announced as this revision. `take` returns those that are not announced again."""
        self._announce(flip.chain, flip.place, revision, gone=False, muted=flip.muted)

    def restore(self, table: pa.Table) -> None:
        """Take announcements (LEDGER_SCHEMA) of an earlier engine, in any order: the highest revision counts."""
        mutes: dict[Name, int] = {}
        for each in _alerts(table):
            known = self._announced.get(each.chain, {}).get(each.place)
            if known is None or known[0] < each.revision:
                self._announce(each.chain, each.place, each.revision, gone=each.gone, muted=each.muted)
                mutes[each.chain] = each.mute
        for name, mute in mutes.items():
            unretracted = {place: muted for place, (_, gone, muted) in self._announced[name].items() if not gone}
            self._chains[name] = Chain(mute, unretracted, (place for place, muted in unretracted.items() if not muted))

    def drop_settled(self, settled: int) -> None:
        """Drop alerts that cannot mute others from `settled` (µs) on, once those may be most of the alerts."""
        if self._count < self._look_again_at:
            return
        self._owed = {(name, place) for name, place in self._owed if self._counts(name, place, settled)}
        for name, alerts in [*self._announced.items()]:
            needed = {place: alert for place, alert in alerts.items() if self._counts(name, place, settled)}
            if len(needed) < len(alerts):
                unretracted = {place: muted for place, (_, gone, muted) in needed.items() if not gone}
                unmuted = (place for place in unretracted if not self._chains[name].muted(place))
                self._announced[name] = needed
                self._chains[name] = Chain(self._chains[name].mute, unretracted, unmuted)
            if not needed:
                del self._announced[name], self._chains[name]
        self._count = sum(map(len, self._announced.values()))
        self._look_again_at = max(_FLOOR, 2 * self._count)

    def entries(self, settled: int, schema: pa.Schema, known: pa.Table | None = None) -> pa.Table:
        """The alerts before `settled` (µs) that can still mute others, as announcements without their content.

        known: announcements (LEDGER_SCHEMA) that are left out.
        """
        others = set[tuple[Name, Place]]() if known is None else {(each.chain, each.place) for each in _alerts(known)}
        rows = [
            dict.fromkeys(("rule_state", "measures", "severity", "text"), "")
            | {
                "event_id": place.event_id.decode(),
                "event_time": from_microseconds(place.time),
                "rule_id": name.rule_id,
                "rule_version": name.rule_version,
                "group": name.group,
                "revision": revision,
                "retracted": gone,
                "muted": muted,
                "mute": self._chains[name].mute,
            }
            for name, alerts in self._announced.items()
            for place, (revision, gone, muted) in alerts.items()
            if place.time < settled
            and not gone
            and not muted
            and self._counts(name, place, settled)
            and (name, place) not in others
        ]
        return pa.Table.from_pylist(rows, schema)

    def _counts(self, name: Name, place: Place, settled: int) -> bool:
        return place.time + self._chains[name].mute >= settled

    def _announce(self, name: Name, place: Place, revision: int, *, gone: bool, muted: bool) -> None:
        alerts = self._announced.setdefault(name, {})
        self._count += place not in alerts
        alerts[place] = revision, gone, muted


class _Made(NamedTuple):
    """An announcement of a rule with `mute`, and the row of the table that it is in."""

    row: int
    chain: Name
    place: Place
    mute: int
    revision: int
    gone: bool
    """Whether it is retracted or silenced, and so in no chain."""
    muted: bool


def _alerts(table: pa.Table) -> list[_Made]:
    """The announcements of rules with `mute` in a table (LEDGER_SCHEMA)."""
    rows = np.flatnonzero(table.column("mute").to_numpy())
    found = []
    made = table.take(pa.array(rows))
    gone = pc.or_(made.column("retracted"), is_silenced(made.column("measures"))).to_pylist()
    for row, is_gone, entry in zip(rows.tolist(), gone, made.select(_READ).to_pylist(), strict=True):
        time = microseconds(entry["event_time"])
        chain = Name(entry["rule_id"], entry["rule_version"], entry["group"], time // _DAY)
        place = place_of(time, entry["event_id"])
        found.append(_Made(row, chain, place, entry["mute"], entry["revision"], is_gone, entry["muted"]))
    return found


def is_silenced(measures: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Of which alerts an allow rule silences: bool. measures: theirs, as JSON."""
    return pc.match_substring(measures, MEMBER)


def muted_among(alerts: pa.Table, mutes: Mapping[tuple[str, int], int]) -> pa.Array:
    """Which of all alerts of whole dates are muted: bool, one per row.

    alerts: rule_id, rule_version, group, event_id and event_time (timestamp[us, UTC]), each alert once. mutes: `mute`
    (µs) by rule id and version; others are not muted, but for what allow rules silence (by `measures`, JSON).
    """
    muted = is_silenced(alerts.column("measures")).to_numpy().astype(np.bool_)
    silenced = muted.copy()
    chains: dict[Name, dict[Place, int]] = {}
    columns: Iterable[tuple[Any, ...]] = zip(
        *(alerts.column(name).to_pylist() for name in ("rule_id", "rule_version", "group", "event_id")),
        alerts.column("event_time").cast(pa.int64()).to_pylist(),
        strict=True,
    )
    for row, (rule_id, version, group, event_id, time) in enumerate(columns if mutes else ()):
        if (rule_id, version) in mutes and not silenced[row]:
            name = Name(rule_id, version, group, time // _DAY)
            chains.setdefault(name, {})[place_of(time, event_id)] = row
    for name, places in chains.items():
        chain = Chain(mutes[name.rule_id, name.rule_version])
        chain.change(places, ())
        muted[[row for place, row in places.items() if chain.muted(place)]] = True
    return pa.array(muted)
