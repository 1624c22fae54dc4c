"""`nightjar replay`: sends a file of events to Kafka, paced as they happened."""

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.context import Context
from nightjar.cli.event_files import EVENTS_HELP, ZONE_HELP, Delimiter, MaxBadLines, delimiter_of, read_shown
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.zones import zone_named


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    file: Annotated[Path, typer.Argument(help=EVENTS_HELP, show_default=False)],
    stream: Annotated[str, typer.Option(help="The stream they belong to.", show_default=False)],
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
    zone: Annotated[str | None, typer.Option(help=ZONE_HELP, show_default=False)] = None,
    delimiter: Delimiter = None,
    max_bad_lines: MaxBadLines = 0,
    speed: Annotated[str, typer.Option(help="Speed-up over the original pace, or `max`.")] = "1",
    keep_times: Annotated[
        bool,
        typer.Option("--keep-times", help="Keep event times and arrivals, instead of shifting them to now."),
    ] = False,
    disorder: Annotated[float, typer.Option(help="Share of events that arrive out of order, but not late.")] = 0.0,
    max_delay: Annotated[
        str | None,
        typer.Option(
            help="Longest delay of out-of-order events. Default: half the allowed lateness.", show_default=False
        ),
    ] = None,
    late: Annotated[float, typer.Option(help="Share of events that arrive after the allowed lateness.")] = 0.0,
    max_late: Annotated[
        str | None,
        typer.Option(
            help="Longest delay beyond the allowed lateness. Default: the allowed lateness.", show_default=False
        ),
    ] = None,
    duplicates: Annotated[float, typer.Option(help="Share of events that are sent twice.")] = 0.0,
    malformed: Annotated[float, typer.Option(help="Malformed records, as a share of the events.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same flaws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was sent as one JSON object.")] = False,
) -> None:
    """Send a file of events to its stream's topic, and report what was sent.

    Event times are shifted so that the first is now, and the intervals between them shrink with the speed. With
    --keep-times events keep their times and each record's timestamp is its arrival time; this requires topics that
    take the arrival from the producer (setting `arrival`), and replays days of history in minutes.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from nightjar.files.bad_lines import BadLines
    from nightjar.kafka import topics
    from nightjar.replay import ReplayOptions, replay_batches, send
    from nightjar.terminal.console import show_json

    context = Context(streams=streams)
    declared = context.recorded_stream(stream)
    if keep_times and context.settings.arrival != "producer":
        raise SettingsError(
            "the topics take arrivals from the broker, so every event would be late",
            where="--keep-times",
            remedy="Set arrival = producer (NIGHTJAR_ARRIVAL=producer) for the topics of a replay",
        )
    faster, times_of, separated = _speed(speed), zone_named(zone, "--zone"), delimiter_of(delimiter)
    bad = BadLines(max_bad_lines)
    with context.progress.status(f"reading {file}"):
        table = read_shown(
            context.progress, file, declared, bad=bad, zone=times_of, delimiter=separated, arrivals=keep_times
        )
    options = ReplayOptions(
        start=None if keep_times else time.time_ns() // 1000,
        speed=faster,
        disorder=disorder,
        max_delay=_duration("--max-delay", max_delay),
        late=late,
        max_late=_duration("--max-late", max_late),
        duplicates=duplicates,
        malformed=malformed,
        seed=seed,
    )
    records, batches = replay_batches(table, declared, options)
    topics.ensure(context.settings, context.streams.values(), only={declared.topic})
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=context.progress) as bar:
        task = bar.add_task(f"sending to {declared.topic}", total=records)
        report = send(
            context.settings,
            declared,
            batches,
            speed=faster,
            shifted=not keep_times,
            progress=lambda count: bar.advance(task, count),
        )
    if as_json:
        show_json({**report.as_dict(), "bad_lines": bad.count})
    else:
        context.console.print(report.table())


def _speed(text: str) -> float:
    try:
        return math.inf if text == "max" else float(text)
    except ValueError:
        raise SettingsError(
            f"{text!r} is not a speed", where="--speed", remedy="Give a positive number, or max"
        ) from None


def _duration(option: str, text: str | None) -> int | None:
    from nightjar.rules.durations import parse_duration

    try:
        return None if text is None else parse_duration(text)
    except NightjarError as error:
        raise SettingsError(error.what, where=option, remedy=error.remedy) from None
