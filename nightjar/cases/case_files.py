"""Reads case files: parses the text to a `Case`, with messages as the bytes sent to Kafka."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from nightjar.cases.documents import CaseError, Number, Stamp, YamlMapping, json_text, read_yaml
from nightjar.cases.model import KEYS, SECTIONS, TIMES, Case, ExpectedOutcome, Message, Row, Step
from nightjar.configuration.settings import Settings
from nightjar.rules.durations import parse_duration
from nightjar.rules.errors import NightjarError
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream, load_streams, streams_from_mapping, with_tables
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, iso_text, parse_timestamp
from nightjar.rules.types import Kind

# Base of the offsets in a case without absolute times: 2026-01-01, midnight UTC.
DEFAULT_BASE = 1_767_225_600_000_000

MAX_BYTES = 16_777_216
SUFFIXES = (".yaml", ".yml")
CASE_KEYS = ("title", "description", "streams", "tables", "settings", "base", "steps", "expect")
_STEP_KEYS = ("at", "crash", "rules", "control", "tables", "events")
_OFFSET = re.compile(r"\+?((?:\s*[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+)\s*", re.ASCII)
_PART = re.compile(r"[0-9.]+[a-z]+", re.ASCII)
_TIME_REMEDY = "Write 2026-01-01T12:00:00Z, epoch milliseconds, or an offset from the case's base such as 5m or 1h 30m"


def find_cases(paths: Iterable[Path]) -> list[Path]:
    """The case files among the paths, and those in folders among them (recursively), in order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not inside:
                raise CaseError("has no case files", where=str(path), remedy="Case files are named like burst.yaml")
            found += inside
        else:
            found.append(path)
    return found


def load_case(path: Path) -> Case:
    """Load a case file. Raises CaseError (or DeclarationError for a stream) with the line of the error."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CaseError(
                f"has more than {MAX_BYTES:,} bytes", where=str(path), remedy="Use `nightjar evaluate` for large files"
            )
        text = path.read_bytes()
    except OSError as failure:
        what = f"cannot be read ({failure.strerror or failure})"
        raise CaseError(what, where=str(path), remedy="Give the path of a case file") from None
    return read_case(text, str(path))


def read_case(text: str | bytes, origin: str) -> Case:
    """Parse a case from YAML text; `origin` names it in errors."""
    return _Reader(origin).case(read_yaml(text, origin))


class _CaseSettings(Settings):
    """Settings of a case: its own and the defaults, independent of the machine's settings."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,
        **more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, others, more
        assert isinstance(init_settings, InitSettingsSource)  # noqa: S101
        return (init_settings,)


class _Reader:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.base: int | None = None
        self.streams: Mapping[str, Stream] = {}

    def error(self, what: str, remedy: str, table: YamlMapping | None = None, key: str = "") -> CaseError:
        line = None if table is None else table.lines.get(key, table.line)
        where = self.origin if line is None else f"{self.origin}: line {line}"
        return CaseError(what, where=f"{where}: {key}" if key else where, remedy=remedy)

    def case(self, written: Any) -> Case:
        if not isinstance(written, YamlMapping):
            raise self.error("is not a mapping", f"A case has keys: {', '.join(CASE_KEYS)}")
        self.known(written, CASE_KEYS, "is not a key of a case")
        self.streams = self.declared(written)
        if written.get("base") is not None:
            self.base = self.time(written, "base")
        settings = self.settings(written)
        steps = self.listed(written, "steps")
        if not steps:
            raise self.error("there are no steps", "Write steps: a list of mappings with at:", written, "steps")
        made: list[Step] = []
        for step in steps:
            made.append(self.step(step, written, made[-1].at if made else None))
        return Case(
            self.text(written, "title") or Path(self.origin).stem,
            self.text(written, "description"),
            self.origin,
            self.streams,
            settings,
            tuple(made),
            self.expectation(written),
        )

    def known(self, table: YamlMapping, keys: Collection[str], what: str) -> None:
        for key in table:
            if key not in keys:
                raise self.error(what, did_you_mean(key, keys, "Keys are"), table, key)

    def text(self, table: YamlMapping, key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str | None):
            raise self.error("is not text", f"Write {key}: a sentence", table, key)
        return (value or "").strip()

    def listed(self, table: YamlMapping, key: str) -> list[Any]:
        """The value as a list; a single value is a list of one."""
        value = table.get(key)
        if value is None:
            return []
        return value if isinstance(value, list) else [value]

    def declared(self, case: YamlMapping) -> Mapping[str, Stream]:
        written, tables = case.get("streams"), _plain(case.get("tables"))
        if written is None:
            streams = load_streams()
            return streams if tables is None else with_tables(streams, tables, self.origin)
        if not isinstance(written, YamlMapping):
            raise self.error("is not a mapping of streams", "Write streams: {name: {...}}", case, "streams")
        return streams_from_mapping(_plain(written), self.origin, Path(self.origin).parent, tables)

    def settings(self, case: YamlMapping) -> Settings:
        written = case.get("settings")
        if written is None:
            return _CaseSettings()
        if not isinstance(written, YamlMapping):
            raise self.error("is not a mapping", "Write settings: {activation_delay: 0s}", case, "settings")
        self.known(written, list(Settings.model_fields), "is not a setting")
        try:
            return _CaseSettings(**_plain(written))
        except ValidationError as refusal:
            first = refusal.errors()[0]
            what = first["msg"].removeprefix("Value error, ")
            raise self.error(
                what, "docs/reference/settings.md describes the setting", written, str(first["loc"][0])
            ) from None

    # Steps

    def step(self, step: Any, case: YamlMapping, before: int | None) -> Step:
        if not isinstance(step, YamlMapping):
            raise self.error("a step is not a mapping", "Write - at: 5m, followed by its events", case, "steps")
        self.known(step, _STEP_KEYS, "is not a key of a step")
        if "at" not in step:
            raise self.error("the step has no time", f"Give it at: {_TIME_REMEDY}", step)
        at = self.time(step, "at")
        if before is not None and at < before:
            raise self.error(
                f"the step at {iso_text(at)} is before the previous one, at {iso_text(before)}",
                "Put steps in order of time; a late event has an earlier event time, not an earlier step",
                step,
                "at",
            )
        if not isinstance(step.get("crash", False), bool):
            raise self.error("is not true or false", "Write crash: true", step, "crash")
        rules = [
            self.message(message, step, key, self.rule)
            for key in ("rules", "control")
            for message in self.listed(step, key)
        ]
        tables = [self.message(message, step, "tables", self.change) for message in self.listed(step, "tables")]
        return Step(at, step.get("crash", False), tuple(rules), tuple(self.events(step)), tuple(tables))

    def events(self, step: YamlMapping) -> Iterator[Message]:
        events = step.get("events")
        if events is None:
            return
        if not isinstance(events, YamlMapping):
            raise self.error("is not a mapping of streams", "Write events: {transactions: [...]}", step, "events")
        for name in events:
            if name not in self.streams:
                remedy = did_you_mean(name, self.streams, "Streams are")
                raise self.error("is not a declared stream", remedy, events, name)
            for event in self.listed(events, name):
                yield Message(name, self.message(event, events, name, lambda e, name=name: self.event(e, name)))

    def message(self, written: Any, table: YamlMapping, key: str, of_mapping: Any) -> bytes:
        """The bytes of a message: a mapping becomes a JSON object, text is sent as it is."""
        if isinstance(written, YamlMapping):
            return json_text(of_mapping(written)).encode()
        if isinstance(written, bytes):
            return written
        if isinstance(written, str):
            return written.encode()
        raise self.error(
            f"{json_text(written):.60} is not a message",
            "Write a mapping, or the raw message as text in quotes",
            table,
            key,
        )

    def rule(self, written: YamlMapping) -> dict[str, Any]:
        """A rule or control message; its effective time may be an offset."""
        found = {**written}
        if isinstance(effective := found.get("effective"), str) and not isinstance(effective, Number):
            instant = self.instant(effective)
            found["effective"] = effective if instant is None else iso_text(instant)
        return found

    def change(self, written: YamlMapping) -> dict[str, Any]:
        """A change of a table; the time from which on it is valid may be an offset."""
        valid_from = written.get("valid_from")
        instant = self.instant(valid_from) if isinstance(valid_from, str) else None
        return {**written} if instant is None else {**written, "valid_from": iso_text(instant)}

    def event(self, written: YamlMapping, stream: str) -> dict[str, Any]:
        """An event; a timestamp field may be written without quotes (UTC if it has no zone) or as an offset."""
        declared, found = self.streams[stream], {**written}
        for name, kind in declared.fields.items():
            if kind.kind is Kind.TIMESTAMP:
                change = partial(self.event_time, as_written=name in declared.times)
                found = declared.path(name).changed(found, change)
        return found

    def event_time(self, value: Any, *, as_written: bool) -> Any:
        """as_written: a point in time without quotes is sent as it is, since the stream says how times are written."""
        if not isinstance(value, str) or isinstance(value, Number) or (as_written and isinstance(value, Stamp)):
            return value
        instant = value.instant if isinstance(value, Stamp) else self.offset(value)
        return value if instant is None else iso_text(instant)

    # Times

    def time(self, table: YamlMapping, key: str) -> int:
        """A point in time, µs; the first absolute one is the base of the offsets unless the case sets `base`."""
        value = table[key]
        instant = self.instant(value) if isinstance(value, str) else None
        if instant is None:
            shown = json_text(value)
            raise self.error(f"{shown:.60} is not a point in time", _TIME_REMEDY, table, key)
        if self.base is None:
            self.base = DEFAULT_BASE if _is_offset(value) else instant
        return instant

    def instant(self, value: str) -> int | None:
        if isinstance(value, Number):
            instant = int(value) * 1000 if re.fullmatch("-?[0-9]{1,18}", value) else None
            return instant if instant is not None and MIN_TIMESTAMP <= instant <= MAX_TIMESTAMP else None
        offset = self.offset(value)
        return parse_timestamp(value, zone_required=False) if offset is None else offset

    def offset(self, text: str) -> int | None:
        """The point in time of an offset such as `1h 30m`; None if the text is not an offset."""
        found = _OFFSET.fullmatch(text)
        if found is None:
            return None
        try:
            instant = (DEFAULT_BASE if self.base is None else self.base) + sum(
                map(parse_duration, _PART.findall(found[1]))
            )
        except NightjarError:
            return None
        return instant if instant <= MAX_TIMESTAMP else None

    # Expectations

    def expectation(self, case: YamlMapping) -> ExpectedOutcome:
        written = case.get("expect")
        if written is None:
            return ExpectedOutcome()
        if not isinstance(written, YamlMapping):
            raise self.error("is not a mapping", f"Write expect: {{final: [...]}}; {_sections()}", case, "expect")
        self.known(written, (*SECTIONS, "state"), "is not a section of the results")
        rows = {
            section: [self.row(row, section, written) for row in self.listed(written, section)]
            for section in written
            if section != "state"
        }
        return ExpectedOutcome(rows, self.state(written) if "state" in written else None)

    def row(self, row: Any, section: str, table: YamlMapping) -> Row:
        if not isinstance(row, YamlMapping):
            raise self.error(
                f"{json_text(row):.60} is not a row", "Write a mapping of the keys to check", table, section
            )
        self.known(row, KEYS[section], f"is not a key of the rows of {section}")
        found = dict(row)
        for key in TIMES & row.keys():
            if row[key] is not None:
                instant = self.instant(row[key]) if isinstance(row[key], str) else None
                if instant is None:
                    raise self.error(f"{json_text(row[key]):.60} is not a point in time", _TIME_REMEDY, row, key)
                found[key] = iso_text(instant)
        return found

    def state(self, expect: YamlMapping) -> Mapping[str, Mapping[str, int]]:
        written = expect["state"]
        remedy = 'Write state: {transactions: {customer_id: 12}}; several fields are joined by commas, none is ""'
        found: dict[str, dict[str, int]] = {}
        for stream, groups in written.items() if isinstance(written, YamlMapping) else [("", None)]:
            if not isinstance(groups, YamlMapping):
                raise self.error("is not rows by stream and group-by", remedy, expect, "state")
            for group, rows in groups.items():
                if not isinstance(rows, Number) or not rows.isdigit():
                    raise self.error(f"{json_text(rows)} is not a number of rows", remedy, groups, group)
            found[stream] = {group: int(rows) for group, rows in groups.items()}
        return found


def _is_offset(value: str) -> bool:
    return not isinstance(value, Number) and _OFFSET.fullmatch(value) is not None


def _sections() -> str:
    return f"Sections are {', '.join(SECTIONS)} and state"


def _plain(value: Any) -> Any:
    """Plain data for the readers of declarations and settings."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, str) else value
