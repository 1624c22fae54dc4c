"""Looks after the whole lake: every table (lake.maintenance), and the staged folders of old runs."""

from collections.abc import Iterator
from datetime import timedelta

from backfill.cleaning import remove_old_staging
from backfill.config import BackfillConfig, staging_folder
from lake import delta
from lake.config import LakeError
from lake.maintenance import AGING, Maintained, maintain
from lake.stream_state import rule_book
from lake.tables import ARCHIVES, LATE_EVENTS, RULE_STATUS, RULES, RUNS, events_table
from nightjar.configuration.settings import Settings
from nightjar.operations.locks import sole_writer
from rules.durations import MICROSECONDS, format_duration
from rules.errors import SettingsError
from rules.names import did_you_mean
from rules.retention import widest
from rules.timestamps import from_microseconds

# The name that stands for the tables of all streams' events.
EVENTS = "events"


def upkeep(settings: Settings, config: BackfillConfig, now: int) -> Iterator[Maintained]:
    """Look after one table after the other, and at last after the staging folder, as the lake's only writer.

    now: wall clock, µs.

    Raises:
        AlreadyRunningError: an archive or a backfill is running.
        LakeError: there is no lake.
        SettingsError: `lake_retention` names an unknown table, or would remove what a backfill may still need.
    """
    with sole_writer(config.lake.root) as fence:
        yield from _upkeep(settings, config.fenced(fence), now)


def _upkeep(settings: Settings, config: BackfillConfig, now: int) -> Iterator[Maintained]:
    if not config.lake.root.is_dir():
        raise LakeError("there is no lake", where=str(config.lake.root), remedy="`nightjar archive` creates it")
    refuse_too_short(settings, config)
    root, unused = config.lake.root, timedelta(microseconds=settings.lake_file_retention)
    kept = settings.lake_retention
    tables = [(events_table(stream), EVENTS) for stream in config.streams.values()]
    tables += [(table, table.name) for table in (*AGING, RULES, RULE_STATUS, ARCHIVES, RUNS)]
    for table, name in tables:
        first = from_microseconds(now - kept[name]).date() if name in kept else None
        done = maintain(root, table, first=first, unused=unused)
        if done is not None:
            yield done
    if staging_folder(config.lake).is_dir() and delta.exists(root, RUNS):
        remove_old_staging(config, "", now)


def refuse_too_short(settings: Settings, config: BackfillConfig) -> None:
    """Raise SettingsError as `upkeep` does. A backfill of the earliest pending day reads the windows before it."""
    known = [EVENTS, *(table.name for table in AGING)]
    days = settings.pending_days + 1
    for name, kept in settings.lake_retention.items():
        where = f"lake_retention: {name}"
        if name not in known:
            raise SettingsError("no such table", where=where, remedy=did_you_mean(name, known, "Tables are"))
        window = _widest_window(config) if name in (EVENTS, LATE_EVENTS.name) else 0
        least = days * MICROSECONDS["d"] + window
        if kept < least:
            parts = f"pending_days and one more are {days}d" + (
                f", the widest window of a rule is {format_duration(window)}" if window else ""
            )
            raise SettingsError(
                f"{format_duration(kept)} is too short: a backfill may need rows of {format_duration(least)} ({parts})",
                where=where,
                remedy="Keep them longer, or lower pending_days",
            )


def _widest_window(config: BackfillConfig) -> int:
    """Of the rules that are evaluated, by the lake's answers, µs."""
    if not delta.exists(config.lake.root, RULE_STATUS):
        return 0
    versions = rule_book(config.lake.root, config.streams).ruleset.versions
    return max((widest(version.rule) for version in versions if version.rule.state.is_evaluated), default=0)
