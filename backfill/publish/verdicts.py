"""Results of a run that need a person, although nothing is broken and a retry would not help.

A verdict ends a stage with its own exit code, so that it is not retried like a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.publish.results import finished_since
from nightjar.backfill.staging import HELD_BACK
from nightjar.expectations.findings import VerdictError
from nightjar.lake.archive import archived_until
from nightjar.lake.scanning import parquet
from nightjar.lake.tables import RUNS
from nightjar.rules.errors import printable
from nightjar.rules.masking import masked_text
from nightjar.rules.timestamps import iso_text
from nightjar.storage.paths import AnyPath

_LISTED = 100  # alerts that an error names; all of them are in the staged folder and in the table `reconciliation`


class NotArchivedError(VerdictError):
    """The lake does not have all arrivals that a run counts."""


class OutdatedError(VerdictError):
    """Another run has published since a run read the lake."""


class HeldBackError(VerdictError):
    """Corrections without a known cause were held back; everything else is published.

    alerts: alert_id, rule_id, rule_version, group, event_id and outcome of each.
    """

    def __init__(self, alerts: Sequence[Mapping[str, Any]], *, where: str, folder: AnyPath) -> None:
        self.alerts = tuple(alerts)
        listed = [f"- {_named(alert)}" for alert in self.alerts[:_LISTED]]
        if len(self.alerts) > _LISTED:
            listed.append(f"- and {len(self.alerts) - _LISTED} more")
        several = len(self.alerts) > 1
        counted = f"{len(self.alerts)} correction{'s were' if several else ' was'} held back: "
        counted += f"nobody knows why the alert{'s differ' if several else ' differs'} from the stream's"
        remedy = (
            "Everything else of the day is done. A difference without a cause is a defect of nightjar: keep the staged "
            f"folder {folder} and open an issue with this list. `nightjar explain ALERT_ID` shows an alert"
        )
        super().__init__("\n".join([counted, *listed, ""]), where=where, remedy=remedy)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}{self.remedy}"


def refuse_unarchived(config: BackfillConfig, request: RunRequest, cut: int) -> None:
    """Raise NotArchivedError if arrivals before the cut (µs) may be missing in the lake."""
    until = archived_until(config.lake.root)
    if until is None or until < cut:
        came = "the archive has not run yet" if until is None else f"the archive has come to {iso_text(until)}"
        raise NotArchivedError(
            f"{came}, and events that arrived until {iso_text(cut)} count",
            where=f"day {request.day}",
            remedy="Once that time has passed, run the day again from its archive stage on (in Airflow: clear the task "
            "`archive` with its downstream tasks); or see what it would do now with --dry-run",
        )


def refuse_outdated(run: RunInputs) -> None:
    """Raise OutdatedError if another run has finished since this one read the lake."""
    if others := finished_since(run.config, run.request.run_id, run.version(RUNS)):
        raise OutdatedError(
            f"{', '.join(others[:5])}{' and others' if len(others) > 5 else ''} finished since this run read the lake, "
            "and what it would publish may no longer hold",
            where=f"run {run.request.run_id}",
            remedy="Nothing was published; run the day again from its evaluate stage on (in Airflow: clear the task "
            "`evaluate` with its downstream tasks)",
        )


def held_back(run: RunInputs) -> HeldBackError | None:
    """The verdict about the corrections that the run has held back; None if there are none."""
    alerts = parquet(run.folder / HELD_BACK / "*.parquet").collect().sort("event_time", "alert_id")
    if not alerts.height:
        return None
    columns = ("alert_id", "rule_id", "rule_version", "group", "event_id", "outcome")
    sensitive = {stream.name: stream.sensitive for stream in run.config.streams.values()}
    listed = [
        {**row, "group": masked_text(row["group"], sensitive.get(row["stream"], frozenset()))}
        for row in alerts.select(*columns, "stream").iter_rows(named=True)
    ]
    return HeldBackError(listed, where=f"day {run.request.day}", folder=run.folder)


def _named(alert: Mapping[str, Any]) -> str:
    """One line; ids and groups are escaped, as they come from events."""
    return (
        f"alert {printable(alert['alert_id'])}: {alert['outcome'] or 'corrected before'}, "
        f"rule {printable(alert['rule_id'])} version {alert['rule_version']}, group {printable(alert['group'])}, "
        f"event {printable(alert['event_id'])}"
    )
