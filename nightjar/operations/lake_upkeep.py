"""Looks after the lake: every table (lake.maintenance) and the staged folders of old runs; repairs days of tables."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import date, timedelta

from nightjar.backfill.config import BackfillConfig, staging_folder
from nightjar.backfill.upkeep.cleaning import remove_old_staging
from nightjar.backfill.upkeep.repair import Repair, Repairable, Repairing, repairable
from nightjar.configuration.settings import Settings
from nightjar.lake import delta
from nightjar.lake.maintenance import AGING, Maintained, maintain
from nightjar.lake.stream_state import rule_book
from nightjar.lake.tables import ARCHIVES, LATE_EVENTS, RULE_STATUS, RULES, RUNS, TABLES, events_table
from nightjar.operations.locks import sole_writer
from nightjar.rules.durations import MICROSECONDS, format_duration
from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean
from nightjar.rules.retention import widest
from nightjar.rules.streams import recorded_streams
from nightjar.rules.timestamps import from_microseconds

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
    config.lake.refuse_missing()
    refuse_too_short(settings, config)
    root, unused = config.lake.root, timedelta(microseconds=settings.lake_file_retention)
    kept = settings.lake_retention
    tables = [(events_table(stream), EVENTS) for stream in recorded_streams(config.streams.values())]
    tables += [(table, table.name) for table in (*AGING, RULES, RULE_STATUS, TABLES, ARCHIVES, RUNS)]
    for table, name in tables:
        first = from_microseconds(now - kept[name]).date() if name in kept else None
        done = maintain(root, table, first=first, unused=unused)
        if done is not None:
            yield done
    if staging_folder(config.lake).is_dir() and delta.exists(root, RUNS):
        remove_old_staging(config, "", now)


def repair(
    settings: Settings,
    config: BackfillConfig,
    day: date | None,
    tables: Sequence[str],
    version: int | None,
    *,
    now: int,
    dry_run: bool,
) -> Iterator[Repair]:
    """Repair a day of some tables (none: of all that have days), or a table that has none, as the lake's only writer.

    version: restore rows from this version of the only table. now: wall clock, µs. With dry_run nothing is written.

    Raises:
        AlreadyRunningError: an archive or a backfill is running. LakeError: there is no lake, or no such version.
        SettingsError: a table is unknown, has no days or several, or `lake_retention` has removed the day.
    """
    wanted = _to_repair(config, day, tables, version)
    if day is not None:
        for each in wanted:
            name = EVENTS if each.table.name.startswith("events_") else each.table.name
            kept = settings.lake_retention.get(name)
            if kept is not None and day < from_microseconds(now - kept).date():
                raise SettingsError(
                    "lake_retention removes this day", where=f"{each.table.name} {day}", remedy="Name a later day"
                )
    with nullcontext() if dry_run else sole_writer(config.lake.root) as fence:
        fenced = config.fenced(fence)
        for each in wanted:
            repairing = Repairing(fenced, each, day)
            yield repairing.plan(version) if dry_run else repairing.apply(version)


def _to_repair(
    config: BackfillConfig, day: date | None, tables: Sequence[str], version: int | None
) -> list[Repairable]:
    config.lake.refuse_missing()
    known = repairable(config)
    for name in tables:
        if name not in known:
            raise SettingsError("no such table", where=name, remedy=did_you_mean(name, known, "Tables are"))
        if (known[name].dated is None) is not (day is None):
            what = "has no days" if day is not None else "is repaired by the day"
            remedy = "Leave out --day" if day is not None else "Name one with --day"
            raise SettingsError(what, where=name, remedy=remedy)
    if not tables and day is None:
        raise SettingsError("neither a day nor a table is named", remedy="Write --day 2026-11-20")
    if version is not None and len(tables) != 1:
        raise SettingsError("versions are those of one table", where=f"--version {version}", remedy="Name it: --table")
    exist = [each for each in known.values() if each.dated and delta.exists(config.lake.root, each.table)]
    return [known[name] for name in tables] if tables else exist


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
    return max((widest(version) for version in versions if version.rule.state.is_evaluated), default=0)
