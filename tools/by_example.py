"""docs/reference/by-example.md: the case files as a book, made by `make docs` (`python -m tools.by_example`).

Chapters stand in tests/cases/contents.toml. What a page shows of a case is what the bare engine makes of it, which the
tests hold the other hosts to.
"""

import json
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from nightjar.cases import Case, Outcome, Step, load_case
from nightjar.cases.documents import Number
from nightjar.cases.simulate import simulate
from rules.durations import format_duration, parse_duration
from rules.events import parse_event
from rules.lateness import DEFAULT_ALLOWED_LATENESS
from rules.streams import Stream, load_streams
from rules.timestamps import iso_text, parse_timestamp

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "cases"
PAGE = ROOT / "docs" / "reference" / "by-example.md"

_HEAD = """\
# Semantics by example

<!-- Made by `make docs` from the case files in tests/cases, in the order of their contents.toml. -->

The [semantics](../semantics.md), one idea at a time. Each example is a [case file](cases.md) that the tests run
on the bare engine, on the Spark job over Kafka, and on the nightly backfill of a Delta lake; try one with
`nightjar simulate tests/cases/NAME.yaml`.

A table shows when things arrive (counted from the beginning of the case), what arrives (of an event its id, the time it
happened, and its other fields in the order of the heading), and what the stream then emits. A version of a rule takes
effect five seconds after it arrives unless it says otherwise. The last line, if there is one, is what the nightly
backfill has to correct, and why.
"""
_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000))
_WIDTH = 120

Row = dict[str, Any]


def contents() -> list[dict[str, Any]]:
    """The chapters: title, about, semantics (statements, such as S4.3) and cases (file names without their ending)."""
    chapters: list[dict[str, Any]] = tomllib.loads((CASES / "contents.toml").read_text())["chapters"]
    return chapters


def page() -> str:
    """The whole page."""
    chapters = [(chapter, [load_case(CASES / f"{name}.yaml") for name in chapter["cases"]]) for chapter in contents()]
    parts = [_HEAD]
    for chapter, cases in chapters:
        listed = "\n".join(f"    - [{case.title}](#{_anchor(case.title)})" for case in cases)
        parts.append(f"- [{chapter['title']}](#{_anchor(chapter['title'])})\n{listed}")
    for chapter, cases in chapters:
        parts.append(f"\n## {chapter['title']}\n\n{chapter['about']}{_cited(chapter)}")
        parts += ["\n" + "\n".join(_Section(case).lines()).rstrip() for case in cases]
    return "\n".join(parts) + "\n"


def _cited(chapter: Mapping[str, Any]) -> str:
    """Links to the statements that a chapter shows."""
    links = [f"[{name}](../semantics.md#{name.lower().replace('.', '-')})" for name in chapter.get("semantics", ())]
    return f"\n\nSemantics: {', '.join(links)}." if links else ""


def _anchor(title: str) -> str:
    """As the heading's link is called where Markdown is shown."""
    kept = "".join(character for character in title.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


class _Section:
    """One case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.begins = case.steps[0].at
        self.outcome: Outcome = simulate(case)
        self.shown: dict[str, Row] = {}
        self.seen: set[tuple[str, str]] = set()

    def lines(self) -> Iterator[str]:
        case = self.case
        yield f"### {case.title}"
        yield ""
        name = Path(case.origin).name
        told = f"{case.description} (`tests/cases/{name}`)"
        yield textwrap.fill(told, _WIDTH, break_long_words=False, break_on_hyphens=False)
        yield ""
        shipped = load_streams()
        own = [stream for name, stream in case.streams.items() if stream != shipped.get(name)]
        first = [written for written in map(_rule_of, case.steps[0].rules) if written is not None]
        yield from _rules(own, [self._in_offsets(rule) for rule in first])
        self.shown = {str(written["id"]): written for written in first if "id" in written}
        used = [name for name in case.streams if any(event.stream == name for s in case.steps for event in s.events)]
        yield f"| at | {'<br>'.join(self._heading(name) for name in used) or 'what arrives'} | what is emitted |"
        yield "| --- | --- | --- |"
        for number, step in enumerate(case.steps):
            yield from self._step(step, is_first=number == 0)
        if self.outcome.corrections:
            said = [f"{self._said(record)} ({record['cause']})" for record in self.outcome.corrections]
            yield f"| at night | | {'<br>'.join(said)} |"
        for stream, groups in (case.expect.state or {}).items():
            held = [f"{rows} by {_code(fields or 'nothing')}" for fields, rows in groups.items()]
            yield f"| in the end | | {stream} held: {', '.join(held)} |"
        yield ""

    def _heading(self, name: str) -> str:
        stream = self.case.streams[name]
        others = [field for field in stream.fields if field not in (stream.event_id, stream.event_time)]
        return f"{name}: {', '.join([stream.event_id, stream.event_time, *others])}"

    def _step(self, step: Step, *, is_first: bool) -> Iterator[str]:
        at = self._offset(step.at)
        happened: list[tuple[str, str | None]] = [("**crash**", None)] if step.crash else []
        # the first rules stand above the table
        messages = [message for message in step.rules if not is_first or _rule_of(message) is None]
        happened += [(self._rule_message(message), None) for message in messages]
        of_event: dict[str | None, list[str]] = defaultdict(list)
        for event in step.events:
            told, identity = self._event(event.raw, event.stream, step.at)
            if identity and (event.stream, identity) in self.seen:
                told, identity = f"{told} (again)", None
            self.seen.add((event.stream, identity or ""))
            happened.append((told, identity))
        ids = {identity for _, identity in happened}
        for record in self._now(self.outcome.alerts, "emitted_at", step):
            of_event[record["event_id"] if record["event_id"] in ids else None].append(self._said(record))
        for record in self._now(self.outcome.late, "arrival_time", step):
            of_event[record["event_id"]].append("late")
        for record in self._now(self.outcome.rule_status, "emitted_at", step):
            if record["status"] in ("REJECTED", "FAILED"):
                reasons = "; ".join(reason.splitlines()[0] for reason in record["reasons"])
                of_event[None].append(f"{record['status']} `{record['rule_id']}`: {_escaped(reasons)}")
        if of_event and not happened:
            happened = [("the rules above", None)]
        rejected = iter(self._now(self.outcome.quarantine, "arrival_time", step))
        for number, (told, identity) in enumerate(happened):
            said = of_event.pop(identity, []) if identity is not None else []
            if identity == "":
                record = next(rejected)
                said = [f"quarantine: {record['reason']}: {_escaped(record['detail'])}"]
            if number == len(happened) - 1:
                said += of_event.pop(None, [])
            yield f"| {at} | {told} | {'<br>'.join(said)} |"

    def _now(self, rows: Iterable[Row], key: str, step: Step) -> Iterator[Row]:
        """The rows of this step; of several steps at one time, they are the first one's."""
        return (row for row in rows if row[key] == iso_text(step.at))

    def _rule_message(self, message: bytes) -> str:
        written = _rule_of(message)
        if written is None:
            return f"rules: {_code(message.decode('utf-8', 'backslashreplace'))}"
        if "control" in written:
            return " ".join([f"{written['control']} {_code(written['rule'])}", *self._effective(written)])
        name = str(written.get("id"))
        known = self.shown.get(name, {})
        self.shown[name] = written
        changes = {k: v for k, v in written.items() if known.get(k) != v and k != "effective"}
        told = _code(_flow(changes)) if known and changes else "as before" if known else "a rule"
        return " ".join([f"rule {_code(name)}: {told}", *self._effective(written)])

    def _in_offsets(self, rule: Row) -> Row:
        return {**rule, "effective": self._time(rule["effective"])} if "effective" in rule else rule

    def _effective(self, written: Mapping[str, Any]) -> Iterator[str]:
        if "effective" in written:
            yield f"from {self._time(written['effective'])} on"

    def _event(self, raw: bytes, name: str, at: int) -> tuple[str, str | None]:
        """The event as a cell, and its id; "" where it cannot be used, None for what is no event."""
        stream = self.case.streams[name]
        event = parse_event(raw, stream)
        usable = isinstance(event, dict) and event[stream.event_time] - at <= stream.max_future_skew
        identity = event[stream.event_id] if isinstance(event, dict) and usable else ""
        try:
            written = json.loads(raw, parse_int=Number, parse_float=Number)
        except ValueError:
            written = None
        if not isinstance(written, dict):
            return _code(raw.decode("utf-8", "backslashreplace")), identity
        others = [n for n in (*stream.fields, *written) if n not in (stream.event_id, stream.event_time)]
        values = [_value(written[n]) if n in written else "—" for n in dict.fromkeys(others)]
        time = self._time(written.get(stream.event_time))
        return f"{_code(_value(written.get(stream.event_id)))}, {', '.join([time, *values])}", identity

    def _said(self, record: Row) -> str:
        named = f"**{record['kind']}** {_code(record['rule_id'])}"
        version = f" v{record['rule_version']}" if record["rule_version"] > 1 else ""
        marks = [mark for mark in (record["rule_state"], record["severity"]) if mark not in ("active", "medium")]
        state = f" ({', '.join(marks)})" if marks else ""
        revision = f", revision {record['revision']}" if record["revision"] > 1 else ""
        told = ", ".join(f"{name} {_value(value)}" for name, value in record["measures"].items())
        text = f"“{_escaped(record['text'])}”" if record["text"] else ""
        detail = "; ".join(filter(None, [told, text]))
        return f"{named}{version}{state} at {_code(record['event_id'])}{revision}" + (f": {detail}" if detail else "")

    def _time(self, value: Any) -> str:
        """A time as an offset where the case wrote one, else as it was written."""
        instant = parse_timestamp(value, zone_required=True) if isinstance(value, str) else None
        return self._offset(instant) if instant is not None and iso_text(instant) == value else _value(value)

    def _offset(self, instant: int) -> str:
        left = instant - self.begins
        sign, left = ("-" if left < 0 else ""), abs(left)
        parts = []
        for unit, length in _UNITS[:-1]:
            amount, left = divmod(left, length)
            parts += [f"{amount}{unit}"] if amount else []
        seconds = f"{left / 1_000_000:.6f}".rstrip("0").rstrip(".")
        return sign + (" ".join(parts + ([f"{seconds}s"] if left else [])) or "0m")


def _rules(own: list[Stream], rules: list[Row]) -> Iterator[str]:
    """The streams of a case and its first rules; a rule that differs little from the first is told by what differs."""
    yield "```yaml"
    if own:
        yield from _block({"streams": {stream.name: _declaration(stream) for stream in own}})
        yield "---"
    alike = []
    for number, rule in enumerate(rules):
        differing = {key: value for key, value in rule.items() if rules[0].get(key) != value}
        if number and rules[0].keys() <= rule.keys() and len(differing) <= 3:
            alike.append(differing)
            continue
        if number:
            yield "---"
        yield from _block(rule)
    yield "```"
    yield ""
    if alike:
        for differing in alike:
            name = differing.pop("id")
            yield f"- `{name}` is `{rules[0]['id']}` with {_code(_flow(differing))}"
        yield ""


def _declaration(stream: Stream) -> Row:
    written: Row = {"event_id": stream.event_id, "event_time": stream.event_time, "entities": list(stream.entities)}
    if stream.allowed_lateness != parse_duration(DEFAULT_ALLOWED_LATENESS):
        written["allowed_lateness"] = format_duration(stream.allowed_lateness)
    fields = {
        name: {"type": str(kind), "optional": True} if name in stream.optional else str(kind)
        for name, kind in stream.fields.items()
    }
    return {**written, "fields": fields}


def _block(written: Any) -> list[str]:
    text = yaml.safe_dump(written, default_flow_style=None, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return str(text).rstrip().splitlines()


def _flow(written: Mapping[str, Any]) -> str:
    return ", ".join(
        yaml.safe_dump({key: value}, default_flow_style=True, width=10_000, allow_unicode=True).strip()[1:-1]
        for key, value in written.items()
    )


def _rule_of(message: bytes) -> Row | None:
    """The mapping in a message on the rules topic, None for garbage."""
    try:
        written = json.loads(message)
    except ValueError:
        return None
    return written if isinstance(written, dict) else None


def _value(value: Any) -> str:
    return _escaped(value if isinstance(value, str) else json.dumps(value))


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _escaped(text: str) -> str:
    for character in "|<>*_`":
        text = text.replace(character, "\\" + character)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
