"""How a message reads: JSON for a webhook, text for a channel, text and headers of a mail.

What is in alerts was chosen by whoever makes events happen. So here it can neither end a line or a header, nor format,
link or mention anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from nightjar.contracts.alerts import RETRACTED
from nightjar.notifications.messages import Message
from nightjar.notifications.notices import is_withdrawal
from nightjar.rules.display import readable
from nightjar.rules.errors import printable, shortened
from nightjar.rules.timestamps import from_microseconds, iso_text

# Characters that a value is shown with, at most.
_LONGEST_NAME, _LONGEST_TEXT = 80, 300
# Between an @ and what follows, so that nobody is mentioned: a space without width.
_NO_MENTION = "@\N{ZERO WIDTH SPACE}"
_TEST = "This is a test of nightjar's notifications."


def payload(message: Message) -> bytes:
    """The JSON of a webhook: `alerts` has records as the alerts topic has them."""
    about = {
        "type": "nightjar.test" if message.is_test else "nightjar.alerts",
        "id": message.key,
        "timestamp": iso_text(message.made_at),
        "alerts": list(message.alerts),
    }
    return json.dumps(about, allow_nan=False).encode()


def channel_text(message: Message) -> str:
    """The text for a channel, in what Slack and those like it have in common of markup.

    Every value is in a code span, where nothing is markup or a mention.
    """
    title = f"*{_title(message)}*"
    return "\n".join([title, *(_channel_line(alert) for alert in message.alerts), *_remainder(message)])


def mail(message: Message, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """The mail. Its Message-ID is made of the key, so that it is the same for each attempt."""
    made_at: datetime = from_microseconds(message.made_at)
    written = EmailMessage(policy=SMTP.clone(cte_type="7bit"))  # not every server takes more
    written["From"], written["To"] = sender, ", ".join(to)
    written["Subject"] = f"[nightjar] {_title(message)}"
    written["Date"] = format_datetime(made_at)
    written["Message-ID"] = f"<{message.key}@{sender.rpartition('@')[2]}>"
    written["Auto-Submitted"] = "auto-generated"
    blocks = ["\n".join(_mail_lines(alert)) for alert in message.alerts]
    written.set_content("\n\n".join([_title(message), *blocks, *_remainder(message)]) + "\n")
    return written


def _title(message: Message) -> str:
    if message.is_test:
        return _TEST
    rules = {alert["rule_id"] for alert in message.alerts}
    which = _name(next(iter(rules))) if len(rules) == 1 else f"{len(rules)} rules"
    counts = [(message.announcements, "alert"), (message.retractions, "retraction")]
    listed = ", ".join(f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in counts if count)
    return f"{message.severity.upper()} {which}: {listed}"


def _remainder(message: Message) -> Iterator[str]:
    if left := sum(message.more.values()):
        yield f"and {left:,} more"


def _channel_line(alert: Mapping[str, Any]) -> str:
    values = [_rule(alert), _group(alert), _text(alert), alert["alert_id"]]
    return f"• {_mark(alert)}{alert['severity']} {_time(alert)} {' '.join(map(_code, values))}"


def _mail_lines(alert: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_mark(alert)}{_time(alert)}  {alert['severity']}  {_rule(alert)}"
    yield f"  {_group(alert)}"
    yield f"  {_text(alert)}"
    yield f"  nightjar explain {alert['alert_id']}"


def _mark(alert: Mapping[str, Any]) -> str:
    return "RETRACTED  " if alert["kind"] == RETRACTED else "ALLOWED  " if is_withdrawal(alert) else ""


def _code(value: str) -> str:
    safe = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
    return f"`{safe.replace('@', _NO_MENTION) or ' '}`"


def _name(text: str) -> str:
    """A name within a title: rules have names of plain characters, and forged records may have others."""
    plain = (each if each.isalnum() and each.isascii() else each if each in "-_." else "?" for each in text)
    return "".join(plain)[:_LONGEST_NAME]


def _time(alert: Mapping[str, Any]) -> str:
    return f"{printable(alert['event_time'])[:19].replace('T', ' ')} UTC"


def _rule(alert: Mapping[str, Any]) -> str:
    return f"{_name(alert['rule_id'])} v{alert['rule_version']}"


def _group(alert: Mapping[str, Any]) -> str:
    return _plain(" ".join(str(value) for value in alert["group"].values()), _LONGEST_NAME)


def _text(alert: Mapping[str, Any]) -> str:
    return _plain(alert["text"] or readable(alert["measures"]), _LONGEST_TEXT)


def _plain(text: str, longest: int) -> str:
    return shortened(printable(text[: longest + 1]), longest)
