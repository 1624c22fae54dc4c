"""A message: what a target is sent at once, in no particular form yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar.contracts.alerts import RETRACTED
from nightjar.notifications.notices import is_withdrawal
from nightjar.rules.errors import NightjarError
from nightjar.rules.states import Severity

_ORDER = {severity.value: number for number, severity in enumerate(Severity)}


class DeliveryError(NightjarError):
    """A target has not accepted a message, this time. again_after: seconds that it asks to wait."""

    def __init__(self, what: str, *, again_after: float = 0.0) -> None:
        super().__init__(what)
        self.again_after = again_after


class RefusedError(DeliveryError):
    """The target does not want this message, and will hardly ever; others may pass."""


@dataclass(frozen=True)
class Message:
    """A message that is being sent.

    key: the same for each attempt, and of no other message; made_at: µs; alerts: records of the alerts topic, of the
    kinds `alert` and `retraction`, without values of sensitive fields; more: how many further ones announce and
    withdraw an alert, under the names of these kinds.
    """

    key: str
    made_at: int
    alerts: Sequence[Mapping[str, Any]]
    more: Mapping[str, int]
    is_test: bool = False

    @property
    def retractions(self) -> int:
        """How many alerts it withdraws."""
        return len([each for each in self.alerts if is_withdrawal(each)]) + self.more.get(RETRACTED, 0)

    @property
    def announcements(self) -> int:
        """How many alerts it announces."""
        return len(self.alerts) + sum(self.more.values()) - self.retractions

    @property
    def severity(self) -> str:
        """The highest of those that it has."""
        return max((alert["severity"] for alert in self.alerts), key=_ORDER.__getitem__, default=Severity.LOW.value)
