"""Rule messages and control messages: the records of the rules topic, keyed by the rule's id.

`nightjar.rules.publishing.judge` decides whether a message is valid and what it means: anybody may publish, and every
message is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.contracts.json_text import ascii_json
from nightjar.rules.approval import APPROVE, DECLINE
from nightjar.rules.model import Rule, State, rule_to_mapping
from nightjar.rules.publishing import CONTROLS, Answer

Message = Mapping[str, Any]


def rule_message(rule: Rule) -> dict[str, Any]:
    """The message that publishes a rule."""
    return rule_to_mapping(rule)


def control_message(control: str, rule_id: str, effective: str | None = None) -> dict[str, Any]:
    """The message that publishes a rule's version in force again in another state. control: one of CONTROLS."""
    return {"control": control, "rule": rule_id} | ({} if effective is None else {"effective": effective})


def approval_message(rule_id: str, version: int, author: str, reason: str) -> dict[str, Any]:
    """The message that approves a proposed version. author: who approves."""
    return {"control": APPROVE, "rule": rule_id, "version": version, "author": author, "reason": reason}


def decline_message(rule_id: str, version: int, author: str, reason: str) -> dict[str, Any]:
    """The message that declines a proposed version. author: who declines."""
    return {"control": DECLINE, "rule": rule_id, "version": version, "author": author, "reason": reason}


def rule_of(message: Message) -> str:
    """The id of the rule that a message is about."""
    return str(message["rule" if "control" in message else "id"])


def settled_by(message: Message, approved: State | None = None) -> tuple[Answer, ...]:
    """The final answers to a message: a rule that is paused or retired never becomes ACTIVE.

    approved: the state of the version that the message approves.
    """
    if message.get("control") == DECLINE:
        return (Answer.REJECTED, Answer.DECLINED)
    if approved is None:
        state = CONTROLS[message["control"]] if "control" in message else State(message["state"])
    else:
        state = approved
    at_once = () if state.is_evaluated else (Answer.ACCEPTED,)
    return (Answer.REJECTED, Answer.PROPOSED, Answer.ACTIVE, *at_once)


def encoded(message: Message) -> tuple[bytes, bytes]:
    """Key and value of a message."""
    return rule_of(message).encode(), ascii_json(message)
