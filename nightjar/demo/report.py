"""The demo's final report: tables of records, alerts, latency and nights, and the checks with their results."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from rich.console import Group
from rich.text import Text

from nightjar.demo.history import DemoHistory
from nightjar.demo.night import NightResults
from nightjar.demo.verdict import LATE_IN_WINDOW, LATE_ITSELF, StreamVerdict
from nightjar.demo.watching import Tally
from nightjar.operations.job_watch import JobState
from nightjar.replay import RecordKind
from nightjar.terminal.tables import RecordTable, number, prose


@dataclass(frozen=True)
class Check:
    """One check: the count found and the count expected."""

    what: str
    found: int
    expected: int

    @property
    def holds(self) -> bool:
        """Whether the count is as expected."""
        return self.found == self.expected


class Sent(Protocol):
    """Counts of the records of one stream that were sent: see `Planned`, which has them."""

    @property
    def records(self) -> int:
        """All."""

    @property
    def kinds(self) -> Counter[str]:
        """Those of each Kind."""

    @property
    def reasons(self) -> Counter[str]:
        """Malformed ones by the reason for which the job must quarantine them."""


def checks(
    streams: Mapping[str, Sent], tally: Tally, state: JobState, comparisons: Mapping[str, StreamVerdict]
) -> list[Check]:
    """The checks of the stream's results, stream by stream."""
    found = []
    for name, sent in streams.items():
        kinds, planned_reasons, reasons = sent.kinds, sent.reasons, tally.quarantined.get(name, Counter())
        counts = state.counts(name)
        seen, duplicates = counts.get("events", 0), counts.get("duplicates", 0)
        found += [
            Check(f"{name}: records seen or quarantined, of those sent", seen + reasons.total(), sent.records),
            Check(f"{name}: events seen, duplicates not counted", seen - duplicates, _events(kinds)),
            Check(f"{name}: duplicates", duplicates, kinds[RecordKind.DUPLICATE]),
            Check(f"{name}: late events", tally.late[name], kinds[RecordKind.LATE]),
            *(
                Check(f"{name}: quarantined as {reason}", reasons[reason], planned_reasons[reason])
                for reason in sorted(planned_reasons.keys() | reasons.keys())
            ),
            Check(
                f"{name}: differences from the truth that no late event explains",
                len(unexplained(comparisons[name])),
                0,
            ),
        ]
    return found


def night_checks(
    history: DemoHistory,
    tally: Tally,
    night: NightResults,
    before: dict[str, StreamVerdict],
    after: dict[str, StreamVerdict],
) -> list[Check]:
    """The checks after the backfills. before, after: the final alerts compared with the truth."""
    differences = sum(len(comparison.differences) for comparison in before.values())
    outcomes, violations = night.outcomes, sum(comparison.violations for comparison in after.values())
    alerts = sum(record["kind"] == "alert" for record in tally.final.values())
    return [
        *(
            Check(f"{name}: records in the lake", night.archived[name], planned.records)
            for name, planned in history.streams.items()
        ),
        Check("nights: the stream's alerts that have an outcome", _total(outcomes, "missed"), alerts),
        Check("nights: violations that have an outcome", _total(outcomes, "retracted"), violations),
        Check("nights: differences with a cause", night.causes.total() - night.causes["unexplained"], differences),
        Check("nights: alerts corrected", night.corrected, differences),
        Check("nights: alerts that now equal the truth", sum(c.equal for c in after.values()), violations),
        Check("nights: alerts that still differ", sum(len(c.differences) for c in after.values()), 0),
    ]


def rules_check(tally: Tally, published: Collection[str]) -> Check:
    """Whether every published rule has led to alerts, so that the report shows what each construct finds."""
    found = sum(rule_id in tally.announced for rule_id in published)
    return Check("rules: those that led to alerts, of those published", found, len(published))


def _total(outcomes: Counter[str], but: str) -> int:
    return outcomes.total() - outcomes[but]


def night_table(night: NightResults) -> RecordTable:
    """The outcomes and corrections of each night."""
    outcomes = ("matched", "missed", "revised", "retracted")
    table = RecordTable(
        "day",
        *map(number, ("violations", *outcomes)),
        prose("causes"),
        *map(number, ("corrected", "gate: passed", "warnings")),
        title="nights: outcomes of the alerts",
    )
    for day, run in sorted(night.runs.items()):
        counts = [run["violations"], *(run["outcomes"].get(name, 0) for name in outcomes)]
        causes = ", ".join(f"{name} {count:,}" for name, count in sorted(run["causes"].items()))
        gate = [run["published"], run["expectations"]["held"], run["expectations"]["warnings"]]
        table.add_row(f"{day}", *(f"{count:,}" for count in counts), causes, *(f"{count:,}" for count in gate))
    return table


def unexplained(comparison: StreamVerdict) -> list[str]:
    """The differences without a cause, one line per difference."""
    return [
        f"{difference.rule_id} v{difference.rule_version} at {difference.event_id}: "
        f"stream {difference.stream_measures or 'no alert'}, truth {difference.true_measures or 'no alert'}"
        for difference in comparison.differences
        if difference.cause is None
    ]


def records_table(history: DemoHistory, tally: Tally, state: JobState) -> RecordTable:
    """Records sent, and how the job counted them."""
    table = RecordTable("", *map(number, history.streams), number("all"), title="events")
    shares = history.streams.values()

    def row(title: str, counts: list[int]) -> None:
        table.add_row(title, *(f"{count:,}" for count in counts), f"{sum(counts):,}")

    row("records sent", [share.records for share in shares])
    row("  out of order", [share.kinds[RecordKind.DISORDERED] for share in shares])
    counts = [state.counts(name) for name in history.streams]
    row("seen as events", [count.get("events", 0) for count in counts])
    row("  duplicates", [count.get("duplicates", 0) for count in counts])
    row("  late", [tally.late[name] for name in history.streams])
    quarantined = [tally.quarantined.get(name, Counter()) for name in history.streams]
    row("quarantined", [reasons.total() for reasons in quarantined])
    for reason in sorted(set().union(*quarantined)):
        row(f"  {reason}", [reasons[reason] for reasons in quarantined])
    return table


def rules_table(tally: Tally, comparisons: dict[str, StreamVerdict]) -> RecordTable:
    """The alerts of each rule, stream by stream, and how many differ from the truth."""
    titles = ("new", "revised", "retracted", "final", "event late", "late in window", "unexplained")
    table = RecordTable(
        "rule",
        "stream",
        *map(number, titles),
        title="alerts, and causes of final ones that differ from the truth: the event or one in its window was late",
    )
    final = Counter(record["rule_id"] for record in tally.final.values() if record["kind"] == "alert")
    causes = Counter(
        (difference.rule_id, difference.cause) for found in comparisons.values() for difference in found.differences
    )
    streams = {record["rule_id"]: record["stream"] for record in tally.final.values()}
    streams |= {each.rule_id: each.stream for found in comparisons.values() for each in found.differences}
    columns = [tally.announced, tally.revisions, tally.retractions, final]
    for rule_id in sorted(streams, key=lambda rule_id: (streams[rule_id], rule_id)):
        counts = [column[rule_id] for column in columns]
        counts += [causes[rule_id, cause] for cause in (LATE_ITSELF, LATE_IN_WINDOW, None)]
        table.add_row(rule_id, streams[rule_id], *(f"{count:,}" for count in counts))
    totals = [column.total() for column in columns]
    totals += [
        sum(count for (_, cause), count in causes.items() if cause == wanted)
        for wanted in (LATE_ITSELF, LATE_IN_WINDOW, None)
    ]
    table.add_section()
    table.add_row("all", "", *(f"{total:,}" for total in totals))
    return table


def latency_table(tally: Tally, batches: dict[str, Any]) -> RecordTable:
    """Percentiles in ms of each stage of an alert's way, and of the parts of the job's micro-batches (last minute)."""
    table = RecordTable("stage", number("p50"), number("p99"), title="latency in ms")
    for stage, took in tally.latencies.items():
        half, most = np.percentile(took, [50, 99]) / 1000
        table.add_row(stage, f"{half:,.0f}", f"{most:,.0f}")
    if batches:
        table.add_section()
        halves, mosts = batches["p50_ms"], batches["p99_ms"]
        for part in ["whole", *(name for name in halves if name != "whole")]:
            title = "micro-batch" if part == "whole" else f"  {part}"
            table.add_row(title, f"{halves.get(part, 0):,.0f}", f"{mosts.get(part, 0):,.0f}")
    return table


def verdict(found: list[Check], comparisons: dict[str, StreamVerdict]) -> Group:
    """Each check with a mark, and the unexplained differences."""
    lines = [
        Text(f"  ✓ {check.what}: {check.found:,}", style="green")
        if check.holds
        else Text(f"  ✗ {check.what}: {check.found:,}, expected {check.expected:,}", style="bold red")
        for check in found
    ]
    for comparison in comparisons.values():
        lines += [Text(f"    {line}", style="red") for line in unexplained(comparison)[:20]]
    return Group(*lines)


def _events(kinds: Counter[str]) -> int:
    return kinds[RecordKind.EVENT] + kinds[RecordKind.DISORDERED] + kinds[RecordKind.LATE]
