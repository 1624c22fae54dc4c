"""How a message reads, whatever is in its alerts."""

import json
from email import message_from_bytes, policy

import pytest

from nightjar.notifications.messages import Message
from nightjar.notifications.texts import channel_text, mail, payload
from tests.support.alert_records import alert

MADE = 1_767_607_203_500_000  # 2026-01-05T10:00:03.5Z
HOSTILE = (
    "<!channel> @here @all <@U1> <https://e.example|click> [x](http://e.example) `code` *b* _i_ ~s~ &lt; \r\n"
    "Bcc: x@e.example\n\n.\nQUIT\x1b[2J\x00\u202e\u2028ü" + "a" * 9_999
)


def message(*alerts: dict[str, object], **more: object) -> Message:
    """One of these alerts."""
    return Message("k" * 32, MADE, alerts, {}, **more)  # type: ignore[arg-type]


def test_a_channel_is_told_what_a_person_needs() -> None:
    """A line for each alert; how many of which kind."""
    text = channel_text(message(alert("t1"), alert("t2", kind="retraction", revision=2)))
    assert text.splitlines() == [
        "*HIGH burst: 1 alert, 1 retraction*",
        f"• high 2026-01-05 10:00:00 UTC `burst v2` `c7` `4 payments` `{alert('t1')['alert_id']}`",
        f"• RETRACTED  high 2026-01-05 10:00:00 UTC `burst v2` `c7` `4 payments` `{alert('t2')['alert_id']}`",
    ]


def test_what_an_allow_rule_has_silenced_is_taken_back() -> None:
    """It is counted as a retraction, and says why."""
    text = channel_text(message(alert("t1", revision=2, muted=True, measures={"allowed_by": "known-device"})))
    assert text.startswith("*HIGH burst: 1 retraction*\n• ALLOWED  high")


def test_a_title_counts() -> None:
    """Rules, the highest severity, and what is not listed."""
    several = Message("k", MADE, [alert("t1"), alert("t2", rule_id="x", severity="critical")], {"alert": 1_998})
    lines = channel_text(several).splitlines()
    assert lines[0] == "*CRITICAL 2 rules: 2,000 alerts*"
    assert lines[-1] == "and 1,998 more"
    assert channel_text(message(is_test=True)) == "*This is a test of nightjar's notifications.*"


def test_values_in_a_channel_are_text() -> None:
    """They stay on their line and within their code spans, without markup, links and mentions."""
    hostile = alert("t1", text=HOSTILE, group={"a": HOSTILE}, rule_id=HOSTILE, measures={"m": HOSTILE})
    text = channel_text(message(hostile))
    title, line = text.split("\n")
    assert title.startswith("*HIGH ??channel?")
    assert not set("<>") & set(text)
    assert "&amp;lt;" in text
    for mention in ("@here", "@all", "@U1", "@e."):
        assert mention not in text
    spans = line.split("`")
    assert len(spans) == 9, "four code spans, and nothing of a value outside"
    assert "".join(spans[::2]).strip() == "• high 2026-01-05 10:00:00 UTC"
    assert all(character.isprintable() or character in "\n\u200b" for character in text)
    assert len(text) < 1_500


def test_a_mail_has_its_headers_and_no_others() -> None:
    """Whatever the values are; the same key gives the same Message-ID."""
    hostile = alert("t1", text=HOSTILE, group={"a": HOSTILE}, rule_id=HOSTILE)
    sent = mail(message(hostile), "nightjar@a.example", ("f@a.example", "g@a.example")).as_bytes()
    read = message_from_bytes(sent, policy=policy.default)
    assert read.keys() == [
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted",
        "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
    ]  # fmt: skip
    assert (read["From"], read["To"]) == ("nightjar@a.example", "f@a.example, g@a.example")
    assert read["Message-ID"] == f"<{'k' * 32}@a.example>"
    assert read["Date"] == "Mon, 05 Jan 2026 10:00:03 +0000"
    assert len(read["Subject"]) < 200
    body = read.get_content()
    assert read.get_content_type() == "text/plain"
    assert len(body.splitlines()) == 6
    assert all(line.isprintable() for line in body.split("\r\n"))


def test_a_mail_is_read_without_a_program() -> None:
    """What, when, who, why, and how to see more."""
    read = mail(message(alert("t1")), "n@a.example", ("f@a.example",))
    assert read["Subject"] == "[nightjar] HIGH burst: 1 alert"
    assert read.get_content().splitlines() == [
        "HIGH burst: 1 alert",
        "",
        "2026-01-05 10:00:00 UTC  high  burst v2",
        "  c7",
        "  4 payments",
        f"  nightjar explain {alert('t1')['alert_id']}",
    ]


@pytest.mark.parametrize("text", [HOSTILE, "ordinary"])
def test_a_webhook_gets_the_records(text: str) -> None:
    """As they are on the topic, in JSON without raw control characters."""
    record = alert("t1", text=text)
    body = payload(message(record))
    assert json.loads(body) == {
        "type": "nightjar.alerts",
        "id": "k" * 32,
        "timestamp": "2026-01-05T10:00:03.500000Z",
        "alerts": [record],
    }
    assert body.isascii()
    assert body.decode().isprintable()
