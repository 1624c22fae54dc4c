"""Formats one alert for a terminal, with its id and latency."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.text import Text

from nightjar.contracts.alerts import RETRACTED, shown
from nightjar.kafka.readers import KafkaRecord
from nightjar.rules.allowing import ALLOWED_BY
from nightjar.rules.display import readable
from nightjar.rules.errors import printable
from nightjar.terminal.console import SafeConsole

_SEVERITY_STYLES = {"low": "cyan", "medium": "yellow", "high": "red", "critical": "bold red"}
_RULE_WIDTH, _GROUP_WIDTH = 26, 24


class Alert(NamedTuple):
    """A record of the alerts topic (contracts.alerts). latency: µs from the event's sending to the alert's arrival on
    its topic, whenever it is shown; None if the event's producer did not say when it was sent."""

    record: dict[str, Any]
    latency: int | None


def alert_of(record: KafkaRecord) -> Alert | None:
    """Parse a Kafka record as an alert; None if it is not one, since anybody may write to a topic."""
    parsed = shown(record.value)
    if parsed is None:
        return None
    # As in `nightjar status`: the brokers stamp the alert, and their clock may be behind the producer's.
    return Alert(parsed, None if record.sent_at is None else max(0, record.arrival - record.sent_at))


def alert_line(alert: Alert, terminal: SafeConsole | None = None, indent: str = "") -> Text:
    """Event time, severity, rule, group; whether it was revised, retracted or muted, and the text; id and latency.

    On one line, unless that is wider than the terminal: then these three parts begin lines of their own. indent: of all
    lines.
    """
    safe = {name: printable(value) for name, value in alert.record.items() if isinstance(value, str)}
    record = alert.record | safe
    says, which = _says(record), _which(record, alert.latency)
    whole = Text(indent).append_text(Text("  ").join([_about(record, padded=True), says, which]))
    if terminal is None or not terminal.is_terminal or whole.cell_len <= terminal.width:
        return whole
    further = indent + "    "
    wrapped = says.wrap(terminal, max(20, terminal.width - len(further)))
    parts = [Text(indent).append_text(_about(record, padded=False))]
    return Text("\n").join(parts + [Text(further).append_text(part) for part in (*wrapped, which)])


def _about(record: Mapping[str, Any], *, padded: bool) -> Text:
    group = printable(" ".join(f"{value}" for value in record["group"].values()))
    rule = f"{record['rule_id']} v{record['rule_version']}"
    about = Text(f"{record['event_time'][:19].replace('T', ' ')}  ")
    about.append(f"{record['severity']:<8}", style=_SEVERITY_STYLES.get(record["severity"], ""))
    about.append(f"  {rule:<{_RULE_WIDTH if padded else 0}}", style="bold")
    return about.append(f"  {group:<{_GROUP_WIDTH if padded else 0}}")


def _says(record: Mapping[str, Any]) -> Text:
    retracted = record["kind"] == RETRACTED
    says = Text()
    if retracted:
        says.append("RETRACTED  ", style="magenta")
    elif record["revision"] > 1:
        says.append(f"REVISED ({record['revision']})  ", style="magenta")
    allowed = record["measures"].get(ALLOWED_BY)
    silent = "muted" if allowed is None else f"allowed by {printable(str(allowed))}"
    marks = {silent: record["muted"], "overflow": record.get("overflow") is True}
    for mark in [name for name, is_set in marks.items() if is_set] + ["shadow"] * (record["rule_state"] == "shadow"):
        says.append(f"{mark}  ", style="dim")
    return says.append(record["text"] or printable(readable(record["measures"])), style="strike" if retracted else "")


def _which(record: Mapping[str, Any], latency: int | None) -> Text:
    return Text(record["alert_id"] + ("" if latency is None else f"  {latency / 1000:,.0f} ms"), style="dim")
