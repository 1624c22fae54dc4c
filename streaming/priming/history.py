"""What decides whether a version starts with the history that its windows need. See priming.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.versions import Primed, RuleVersion


@dataclass(frozen=True)
class Ready:
    """A version may take effect. primed: the history that it waited for, None if it did not wait for any."""

    primed: Primed | None = None


class History(Protocol):
    """Looks up, and provides, the history of versions."""

    def lacking(self, version: RuleVersion, key: ShuffleKey, naming: Sequence[RuleVersion] = ()) -> str | None:
        """Why a version has to wait for history that its shuffle key lacks, for a person; None if it need not wait.

        naming: those that count its violations, and so need what it needs before what they need themselves.
        """

    def find(
        self, version: RuleVersion, key: ShuffleKey, naming: Sequence[RuleVersion] = (), *, is_known: bool
    ) -> Ready | None:
        """Whether a version that waits may take effect; None: not yet. is_known: whether the query knows it."""


class AsItIs:
    """Versions start with the history that the state has."""

    def lacking(self, *_: object) -> str | None:
        """Nothing to wait for."""
        return None

    def find(self, *_: object, is_known: bool) -> Ready | None:  # noqa: ARG002  of the protocol
        """At once."""
        return Ready()


AS_IT_IS = AsItIs()
