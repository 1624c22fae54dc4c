"""Shows what versions that apply to the past change there, before they are sent."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nightjar.configuration.settings import Settings
    from nightjar.rules.streams import Stream
    from nightjar.rules.versions import Published, RuleVersion
    from nightjar.terminal.console import SafeConsole


def show_past_effects(
    settings: "Settings",
    streams: "Mapping[str, Stream]",
    known: "Published",
    messages: Iterable[Mapping[str, Any]],
    console: "SafeConsole",
    *,
    indent: int = 0,
) -> None:
    """Print a line for each of the messages, sent now, whose version states an effective time that is past."""
    from nightjar.rules.publishing import judge
    from nightjar.terminal.console import line

    now = time.time_ns() // 1000
    for message in messages:
        made, _ = judge(
            known,
            message,
            now,
            streams,
            settings.activation_delay,
            forms=settings.forms,
            approvals=settings.approvals,
        )
        if made is not None and (text := _text(settings, streams, known, made, now)):
            console.print(line(" " * indent, (text, "yellow")), soft_wrap=True)


def _text(
    settings: "Settings", streams: "Mapping[str, Stream]", known: "Published", made: "RuleVersion", now: int
) -> str:
    """Empty where nothing of the past changes."""
    from nightjar.rules.errors import NightjarError
    from nightjar.rules.timestamps import iso_text, microseconds
    from nightjar.terminal.stages import Stages, announce_compiling

    stated = None if made.rule.effective is None else microseconds(made.rule.effective)
    if stated is None or stated >= now:
        return ""
    named = f"version {made.version} of {made.rule.id}"
    if made.is_proposed or made.approval is not None:
        return f"{named} states {iso_text(stated)[:19]}Z, which is past: it applies from its approval on, not before"
    with Stages().waiting(f"evaluating what {named} changes of the past"):
        from nightjar.operations.past_effect import past_effect

        announce_compiling()
        try:
            return str(past_effect(settings.lake, streams, known, made, now, pending_days=settings.pending_days))
        except NightjarError as failure:
            since = f"{named} applies to the past, from {iso_text(stated)[:19]}Z on"
            return f"{since}; how many alerts that changes is not known: {failure}"
