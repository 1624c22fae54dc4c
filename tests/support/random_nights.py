"""Purpose: random runs of the job over several days, with nights in any order between and after its steps.

How it works: a run of seconds (random_runs.py) is stretched to days, with a midnight in its middle; StreamHost plays
it, and LakeNights has the lake. Between the steps, as far as the archive has come, days are run: pending ones and
others, whole or of some rules or groups, dry, or killed before or after any of their writes and then tried again; and
the tables are looked after: merged, vacuumed, rows of old days removed, and now and then a person is forgotten. In the
end the pending days are run, in any order, and one more night.

What it checks: every difference has a cause; nothing is published twice; the alerts of a consumer, and the table of
violations, are the truth by the reference, as far as the lake still has what they depend on; nothing is pending, and
days that are run again publish and change nothing; explanations of a few alerts say what was published.

What it does not do: events of one id and different content that lie far apart, of which a night reads one only (S4.3).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from nightjar.backfill.config import microseconds_of_day
from nightjar.backfill.erasure.forgetting import forget
from nightjar.backfill.erasure.person import Person
from nightjar.backfill.publish import publication
from nightjar.backfill.publish.verdicts import HeldBackError, NotArchivedError, OutdatedError
from nightjar.lake import delta
from nightjar.lake.maintenance import maintain
from nightjar.lake.scanning import scan
from nightjar.lake.stream_state import rule_book
from nightjar.lake.tables import ALERTS, CORRECTIONS, LATE_EVENTS, RECONCILIATION, RUNS, VIOLATIONS, events_table
from nightjar.rules.durations import format_duration, parse_duration
from nightjar.rules.timestamps import from_microseconds, iso_text, parse_timestamp
from tests.support import lake_nights
from tests.support.agreement import announced, differing, plain, wrongly_muted
from tests.support.evicting import evicting_early
from tests.support.explained import disagreement
from tests.support.histories import SECOND, setting
from tests.support.lake_nights import Killed
from tests.support.night_runs import NightRun
from tests.support.random_runs import Batch, Published, Restart, Run, place
from tests.support.reference import IN_THE_END, Event, Measure, Version, named_by, reach_of, violations
from tests.support.runs_on_job import drawn

# A second of a run becomes twelve minutes: windows of up to five days, two hours of lateness, 300 s before a midnight.
FACTOR = 720
DAY = 86_400 * SECOND
BEGIN = 300 * SECOND  # of every run
MIDNIGHT = 20_900 * DAY
# Of so many alerts of a run the explanation is compared.
_EXPLAINED = 4
_DURATIONS = ("over", "delay", "episode", "resolution", "mute", "within", "session")


def stretched(run: Run, before: int) -> Run:
    """The run over days. before: how many µs of its own a midnight comes after its begin."""

    def at(time: int) -> int:
        return MIDNIGHT + (time - BEGIN - before) * FACTOR

    def restart(step: Restart) -> Restart:
        return replace(
            step, activation_delay=step.activation_delay * FACTOR, allowed_lateness=step.allowed_lateness * FACTOR
        )

    def event(each: Event) -> Event:
        return {**each, run.declared.event_time: at(each[run.declared.event_time]), "arrival": at(each["arrival"])}

    def message(each: Published) -> Published:
        effective = None if each.effective is None else at(each.effective)
        written = _longer(each.written) | ({} if effective is None else {"effective": iso_text(effective)})
        version = None if each.version is None else _longer_version(each.version, effective or 0)
        return replace(each, arrival=at(each.arrival), written=written, effective=effective, version=version)

    def batch(step: Batch) -> Batch:
        clock = None if step.clock is None else at(step.clock)
        messages, events = [*map(message, step.messages)], [*map(event, step.events)]
        return replace(step, at=at(step.at), messages=messages, events=events, clock=clock)

    declared = replace(
        run.declared,
        allowed_lateness=run.declared.allowed_lateness * FACTOR,
        max_future_skew=run.declared.max_future_skew * FACTOR,
    )
    steps = [restart(step) if isinstance(step, Restart) else batch(step) for step in run.steps]
    return without_distant_copies(replace(run, declared=declared, steps=steps))


def _longer(written: Any) -> Any:
    """A rule as written, with longer windows."""
    if not isinstance(written, dict):
        return written
    return {
        name: format_duration(parse_duration(value) * FACTOR) if name in _DURATIONS else _longer(value)
        for name, value in written.items()
    }


def _longer_version(version: Version, effective: int) -> Version:
    def longer(measure: Measure) -> Measure:
        return replace(
            measure,
            over=measure.over if measure.calendar else measure.over * FACTOR,
            delay=measure.delay * FACTOR,
            resolution=measure.resolution * FACTOR,
            session=measure.session * FACTOR,
        )

    measures = {name: longer(measure) for name, measure in version.measures.items()}
    longer_times = {"mute": version.mute * FACTOR, "within": version.within * FACTOR}
    return replace(version, effective=effective, measures=measures, **longer_times)


def without_distant_copies(run: Run) -> Run:
    """The run without events whose id names another one that a night need not read together with them."""
    stream, first = run.declared, dict[str, Event]()
    apart = stream.max_future_skew + min(s.allowed_lateness for s in run.steps if isinstance(s, Restart))
    dropped = set()
    for each in run.events:
        known = first.setdefault(each[stream.event_id], each)
        if abs(known[stream.event_time] - each[stream.event_time]) > apart:
            dropped.add(place(each))

    def kept(step: Restart | Batch) -> Restart | Batch:
        if isinstance(step, Restart):
            return step
        return replace(step, events=[each for each in step.events if place(each) not in dropped])

    return replace(run, steps=[kept(step) for step in run.steps])


class RandomNights:
    """A stretched run and its nights, decided by the seed. complaints: lines for people; counts: what happened."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run, self._rng = run, random.Random(seed)  # noqa: S311  nothing secret
        self.counts: Counter[str] = Counter(events=len(run.events))
        self.complaints: list[str] = []
        self._removed = dict[str, date]()  # by table, before which date
        self._erased = list[tuple[Event, frozenset[tuple[str, ...]]]]()  # and the group-bys that rules had then
        self._forgotten: str | None = None  # as `who`
        with (
            evicting_early(),
            TemporaryDirectory(prefix="nightjar-nights-") as folder,
            patch.object(publication, "_RECORDS_PER_TRANSACTION", 2),
        ):
            self._play(Path(folder))

    def _play(self, folder: Path) -> None:
        self._job = job = NightRun(self._run, folder)
        self._nights = job.nights
        self._nights.send(self._run.events)
        self._retains = self._rng.random() < 0.25
        for step in self._run.steps:
            job.take(step)
            if isinstance(step, Batch) and self._rng.random() < 0.6:
                self._pass(step.at)
        # until nothing is waited for any more
        end = (step.at if isinstance(step, Batch) else MIDNIGHT) + 2 * DAY
        job.take(Batch(end, [], [], end, again=False, history=""))
        self._conclude(end)

    def _pass(self, now: int) -> None:
        """Archive, and whatever people and schedules do by then (µs)."""
        nights, rng = self._nights, self._rng
        nights.archive(now)
        today = from_microseconds(now).date()
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            pending = nights.pending()
            if pending and rng.random() < 0.6:
                day = rng.choice(pending)
            else:
                day = today - timedelta(days=rng.choice((0, 1, 1, 2, 3, 9)))
            self._night(day, now, **self._asked())
        self._look_after(now)

    def _asked(self) -> dict[str, Any]:
        rng, config = self._rng, self._nights.config
        known = sorted({v.rule.id for v in rule_book(config.lake.root, config.streams).ruleset.versions})
        asked: dict[str, Any] = {}
        if known and rng.random() < 0.25:
            asked["rules"] = (rng.choice(known),)
        if rng.random() < 0.15:
            field = rng.choice(self._run.declared.entities)
            values = sorted({str(each[field]) for each in self._run.events if each[field] is not None})
            if values and field in ("who", "place"):
                asked["groups"] = {field: (rng.choice(values),)}
        if rng.random() < 0.15:
            asked["dry_run"] = True
        return asked

    def _night(self, day: date, now: int, **asked: Any) -> dict[str, Any]:
        """A run of a day, killed now and then, and tried again until it is done; what it counted."""
        nights, rng = self._nights, self._rng
        run_id = f"run-of-{day}-{self.counts['nights']}"
        self.counts.update(["nights", *asked])
        stages: tuple[str, ...] = ()
        for attempt in range(6):
            killed_at = rng.randrange(1, 12) if rng.random() < 0.3 and attempt < 4 else 0
            try:
                with _killing(killed_at):
                    counts = nights.night(day, *stages, now=now, run_id=run_id, **asked)
            except Killed:
                self.counts["killed"] += 1
                self._archive_again(now)
                # tried again from the start, or by somebody else, or from the stage that was killed
                choice = rng.choice(("start", "other", "publish"))
                run_id = f"{run_id}-again" if choice == "other" else run_id
                stages = ("publish",) if choice == "publish" and self._is_reconciled(run_id) else ()
            except OutdatedError:
                stages = ()
            except NotArchivedError:
                return {}
            except HeldBackError as held:
                self.complaints.append(f"unexplained: {held}")
                return {}
            else:
                self.counts.update(f"cause_{name}" for name in counts["causes"])
                self.counts["corrections"] += counts["published"]
                self.counts["beyond_retention"] += counts["beyond_retention"]
                self._archive_again(now)
                return counts
        raise AssertionError("a run does not get done")

    def _archive_again(self, now: int) -> None:
        """What was published may be archived before the next run, or not."""
        if self._rng.random() < 0.7:
            self._nights.archive(now + 1)

    def _is_reconciled(self, run_id: str) -> bool:
        progress = self._nights.root / "staging" / run_id / "progress.json"
        return progress.exists() and "reconcile" in json.loads(progress.read_text())["seconds"]

    def _look_after(self, now: int) -> None:
        """Upkeep: of some tables, and of old rows of one."""
        rng, root = self._rng, self._nights.root
        events = events_table(self._run.declared)
        for table in (events, ALERTS, LATE_EVENTS, VIOLATIONS, RECONCILIATION, CORRECTIONS, RUNS):
            if rng.random() < 0.1:
                maintain(root, table, first=None, unused=timedelta(0))
                self.counts["maintained"] += 1
        if self._forgotten is None and rng.random() < 0.05:
            self._forget(now)
        if self._retains and rng.random() < 0.5:
            table = rng.choice((events, ALERTS, LATE_EVENTS))
            first = from_microseconds(now).date() - timedelta(days=rng.choice((0, 1, 2)))
            done = maintain(root, table, first=first, unused=timedelta(0))
            if done is not None and done.removed_rows:
                self._removed[table.name] = max(first, self._removed.get(table.name, first))
                self.counts["removed_rows"] += done.removed_rows

    def _forget(self, now: int) -> None:
        """Erase somebody no id of whose events names another event (S15.5)."""
        nights, stream = self._nights, self._run.declared
        ids: dict[str, list[Event]] = {}
        for each in self._run.events:
            same = ids.setdefault(each[stream.event_id], [])
            same += [each] if all(_content(each) != _content(other) for other in same) else []
        shared = {each.get("who") for same in ids.values() if len(same) > 1 for each in same}
        alone = {who for same in ids.values() for each in same if (who := each.get("who"))} - shared
        if not alone:
            return
        self._forgotten = self._rng.choice(sorted(alone))
        config = nights.config
        known = frozenset(
            v.rule.group_by for v in rule_book(config.lake.root, config.streams).ruleset.of_stream(stream.name).versions
        )
        forget(config, Person({"who": (self._forgotten,)}), [stream], from_microseconds(now), dry_run=False)
        there = (each for each in self._run.events if each["arrival"] < nights.archived)
        self._erased = [(each, known) for each in there if each.get("who") == self._forgotten]
        self.counts["erased_events"] += len(self._erased)

    def _conclude(self, now: int) -> None:
        """The nights that are due in the end, and what must be so after them."""
        nights, rng = self._nights, self._rng
        self.counts["begun_again"] += sum(times > 1 for times in self._job.host.begun)
        now += 40 * DAY
        nights.archive(now)
        for _ in range(20):
            pending = nights.pending()
            if not pending:
                break
            self._night(rng.choice(pending), now)
        else:
            self.complaints.append(f"still pending: {nights.pending()}")
        nights.archive(now + 1)
        last = from_microseconds(now).date() - timedelta(days=2)
        self._night(last, now)  # which judges what was left to the stream
        nights.archive(now + 2)
        self.complaints += [f"after all nights: {line}" for line in self._wrong()]
        days = [from_microseconds(now - 40 * DAY).date() - timedelta(days=back) for back in range(-1, 5)]
        for day in rng.sample(days, 2):
            counts = self._night(day, now)
            nights.archive(now + 2)
            if counts and (counts["published"] or counts["violations_changed"]):
                self.complaints.append(f"run again, {day} publishes or changes: {counts}")
        self.complaints += [f"after days were run again: {line}" for line in self._wrong()]
        self.complaints += [*self._explained_otherwise()]

    def _latest(self) -> dict[str, dict[str, Any]]:
        """The last record of each alert, as a consumer has it."""
        latest: dict[str, dict[str, Any]] = {}
        for each in sorted(self._nights.alerts, key=lambda each: (each["revision"], each["source"] == "backfill")):
            latest[each["alert_id"]] = each
        return latest

    def _explained_otherwise(self) -> Iterator[str]:
        """What explanations of a few alerts say otherwise than was published."""
        of = {(version.rule_id, version.version): version for version in self._job.answers.versions}
        event_id, event_time = self._run.declared.event_id, self._run.declared.event_time
        own = {(each[event_id], iso_text(each[event_time])): each for each in self._run.events}
        known = [
            each
            for _, each in sorted(self._latest().items())
            if self._is_known(of[each["rule_id"], each["rule_version"]], own[each["event_id"], each["event_time"]])
        ]
        some = self._rng.sample(known, min(len(known), _EXPLAINED))
        self.counts["explained"] += len(some)
        for each in some:
            wrong = disagreement(self._nights.config, each["alert_id"], holds=each["kind"] == "alert", judged=True)
            if wrong:
                yield f"{wrong}: {each}"

    def _wrong(self) -> Iterator[str]:
        """What is not the truth, as far as it can be known."""
        run, stream, versions = self._run, self._run.declared, self._job.answers.versions
        alerts = self._nights.alerts
        published = Counter((each["alert_id"], each["revision"]) for each in alerts if each["source"] == "backfill")
        yield from (f"{name} is published {count} times" for name, count in published.items() if count > 1)
        of = {(version.rule_id, version.version): version for version in versions}
        in_force = [each for each in self._latest().values() if each["kind"] == "alert"]
        truth = violations(setting(stream, truth=True), versions, run.events, IN_THE_END)
        own = {(each[stream.event_id], each[stream.event_time]): each for each in run.events}
        # of an id that several events have: the first counts
        first = {each[stream.event_id]: each for each in reversed(run.events)}
        got = {}
        for each in in_force:
            key = each["rule_id"], each["rule_version"], each["event_id"]
            at = parse_timestamp(each["event_time"], zone_required=True)
            if self._is_known(of[key[:2]], own[each["event_id"], at]):  # type: ignore[index]  # it has a time
                got[key] = plain(of[key[:2]].measures, stream, each["measures"])
        known = {key: values for key, values in truth.items() if self._is_known(of[key[:2]], first[key[2]])}
        self.counts["violations"] += len(known)
        yield from differing("alerts", got, announced(versions, known))
        if not (self._removed or self._erased):
            yield from wrongly_muted("alerts", versions, in_force)
        rows = scan(self._nights.root, VIOLATIONS).collect().to_dicts()
        table = {
            (row["rule_id"], row["rule_version"], row["event_id"]): plain(
                of[row["rule_id"], row["rule_version"]].measures, stream, json.loads(row["measures"])
            )
            for row in rows
            if self._is_known(of[row["rule_id"], row["rule_version"]], first[row["event_id"]])
        }
        if len({row["alert_id"] for row in rows}) < len(rows):
            yield "an alert has two rows in the table of violations"
        yield from differing("violations", table, known)

    def _is_known(self, version: Version, event: Event) -> bool:
        """Whether the lake still has all that an alert at that event depends on."""
        return self._is_kept(version, event) and not self._is_erased(version, event)

    def _is_erased(self, version: Version, event: Event) -> bool:
        time, event_time = event[self._run.declared.event_time], self._run.declared.event_time
        if event.get("who") == self._forgotten is not None:
            return True  # the later ones of a person, too: who knows whether they were there by then
        since = (time // DAY * DAY if version.mute else time) - self._reach(version)
        return any(
            since <= erased[event_time] <= time
            and (version.group_by not in known or all(erased[name] == event[name] for name in version.group_by))
            for erased, known in self._erased
        )

    def _reach(self, version: Version) -> int:
        return reach_of(replace(version, named=named_by(version, self._job.answers.versions)))

    def _is_kept(self, version: Version, event: Event) -> bool:
        time, skew = event[self._run.declared.event_time], self._run.declared.max_future_skew
        lateness = max(step.allowed_lateness for step in self._run.steps if isinstance(step, Restart))
        begin = time // DAY * DAY - DAY if version.mute else time  # the whole date, and whatever is clipped to one
        widest = max(self._reach(each) for each in self._job.answers.versions)
        for name, first in self._removed.items():
            needs = 0 if name == ALERTS.name else widest + lateness + skew
            if begin - needs < microseconds_of_day(first) + skew:
                return False
        return True


def _content(event: Event) -> Event:
    """Without how it came."""
    return {name: value for name, value in event.items() if name not in ("arrival", "partition", "offset")}


@contextmanager
def _killing(at: int) -> Iterator[None]:
    """Kill what runs before or after one of its writes; at: its number, twice, before it and then after; 0: never."""
    left = at

    def killing(original: Any) -> Any:
        def write(*given: Any, **named: Any) -> Any:
            count()
            done = original(*given, **named)
            count()
            return done

        return write

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    places = [(delta, "replace"), (delta, "merge"), (delta, "add"), (lake_nights.Producer, "commit_transaction")]
    with ExitStack() as patched:
        for where, name in places if at else ():
            patched.enter_context(patch.object(where, name, killing(getattr(where, name))))
        yield


def drawn_nights(number: int, count: int) -> Iterator[tuple[Run, int]]:
    """So many stretched runs, each with a seed for its nights; the same for the same number."""
    for at, run in enumerate(drawn(number, count, keys=True)):
        own = number * 1_000_000 + at
        before = random.Random(own).randrange(100) * SECOND  # noqa: S311  nothing secret
        yield stretched(run, before), own
