"""Formats one alert as a line for a terminal, with its latency."""

from typing import Any, NamedTuple

from rich.text import Text

from contracts.alerts import RETRACTED, shown
from nightjar.cli.console import readable
from nightjar.kafka.readers import Record
from rules.errors import printable

_SEVERITY_STYLES = {"low": "cyan", "medium": "yellow", "high": "red", "critical": "bold red"}
_GROUP_WIDTH = 24


class Alert(NamedTuple):
    """A record of the alerts topic (contracts.alerts). latency: µs from the event's sending to receipt, or None."""

    record: dict[str, Any]
    latency: int | None


def alert_of(record: Record) -> Alert | None:
    """Parse a Kafka record as an alert; None if it is not one, since anybody may write to a topic."""
    parsed = shown(record.value)
    if parsed is None:
        return None
    return Alert(parsed, None if record.sent_at is None else record.received - record.sent_at)


def alert_line(alert: Alert) -> Text:
    """Event time, severity, rule, group, whether it was revised, retracted or muted, text, latency."""
    safe = {name: printable(value) for name, value in alert.record.items() if isinstance(value, str)}
    record = alert.record | safe
    retracted = record["kind"] == RETRACTED
    group = printable(" ".join(f"{value}" for value in record["group"].values()))
    latency = "" if alert.latency is None else f"  {alert.latency / 1000:,.0f} ms"
    line = Text(f"{record['event_time'][:19].replace('T', ' ')}  ")
    line.append(f"{record['severity']:<8}", style=_SEVERITY_STYLES.get(record["severity"], ""))
    line.append(f"  {record['rule_id']} v{record['rule_version']}".ljust(28), style="bold")
    line.append(f"  {group:<{_GROUP_WIDTH}}  ")
    if retracted:
        line.append("RETRACTED  ", style="magenta")
    elif record["revision"] > 1:
        line.append(f"REVISED ({record['revision']})  ", style="magenta")
    if record["muted"]:
        line.append("muted  ", style="dim")
    if record.get("overflow") is True:
        line.append("overflow  ", style="dim")
    if record["rule_state"] == "shadow":
        line.append("shadow  ", style="dim")
    line.append(record["text"] or printable(readable(record["measures"])), style="strike" if retracted else "")
    line.append(latency, style="dim")
    return line
