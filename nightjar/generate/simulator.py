"""Runs the simulation: from its options to one table per stream."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from nightjar.generate.events import Logins, Payments, draw_logins, draw_payments, logins_table, payments_table
from nightjar.generate.population import draw_population
from nightjar.generate.scenarios import SCENARIOS, draw_fraud
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import load_streams

MAX_EVENTS = 50_000_000


@dataclass(frozen=True)
class Options:
    """What to simulate."""

    events: int = 100_000
    """Payments."""
    days: int = 7
    customers: int = 5_000
    terminals: int = 2_000
    logins: float = 0.4
    """Genuine logins per payment."""
    fraud: float = 0.005
    """Share of payments that are fraudulent."""
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    seed: int = 0
    prefix: str = ""
    """Of every event's id: a stream takes a second event with one id for a duplicate, so what is sent after other
    simulated events needs another prefix."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("days", 1, 3660),
            ("customers", 1, 1_000_000),
            ("terminals", 1, 1_000_000),
            ("events", 1, MAX_EVENTS),
            ("logins", 0, 10),
            ("fraud", 0, 0.5),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise SettingsError(f"{value} is out of range", where=name, remedy=f"Choose {least} to {most:,}")
        if self.start.tzinfo is None:
            raise SettingsError("has no time zone", where="start", remedy="Give it one, as in 2026-01-05T00:00:00Z")


def generate(options: Options) -> dict[str, pa.Table]:
    """One table per stream (`transactions`, `logins`) in order of event time; the same options give the same tables.

    Schema: the shipped declaration's fields, then `scenario` (string: a Scenario, null for genuine). Event times are
    within `days` days from `start`, except that a retried login may be up to a minute later. Ids ascend with event
    time.
    """
    everyone, honest, online, bad = (
        np.random.default_rng(seed) for seed in np.random.SeedSequence(options.seed).spawn(4)
    )
    people = draw_population(everyone, options.customers, options.terminals)
    fraud = draw_fraud(bad, people, options.events * options.fraud, options.days)
    genuine = max(0, options.events - fraud.payments.time.size)
    weekday = options.start.weekday()
    payments = draw_payments(honest, people, genuine, weekday, options.days)
    logins = draw_logins(online, people, round(options.events * options.logins), weekday, options.days)
    streams = load_streams()
    start = int(options.start.timestamp()) * 1_000_000
    names = [scenario.value for scenario in SCENARIOS]
    spent, entered = Payments.joined(payments, fraud.payments), Logins.joined(logins, fraud.logins)
    return {
        "transactions": payments_table(spent, streams["transactions"], start, names, options.prefix),
        "logins": logins_table(entered, streams["logins"], start, names, options.prefix),
    }
