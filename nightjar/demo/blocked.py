"""The demo's list: addresses from which logins fail, blocked for some hours of the first day."""

from pathlib import Path

import polars as pl

from nightjar.configuration.settings import Settings
from nightjar.demo.history import DemoHistory
from nightjar.installation import shipped
from nightjar.operations.tables import Order, change_table
from nightjar.rules.lateness import SHIPPED
from nightjar.rules.timestamps import from_microseconds

RULES = shipped("examples") / "lists.yaml"
TABLE = "blocked_ips"
AUTHOR = "demo"

_DECLARED = f'\n[tables.{TABLE}]\nkey = "string"\n'
_HOUR = 3_600_000_000
# Hours after the beginning, and failed logins of an address that is blocked then.
_BLOCKED_AT, _FAILURES = 8, 5


def declare(file: Path) -> None:
    """Write the shipped declarations of streams to a file, with that of the list."""
    file.write_text(SHIPPED.read_text(encoding="utf-8") + _DECLARED, encoding="utf-8")


def suspicious(history: DemoHistory) -> list[str]:
    """The addresses from which many logins fail, in order."""
    failed = pl.DataFrame(history.streams["logins"].events).filter(pl.col("status") == "FAIL")
    often = failed.group_by("ip").len().filter(pl.col("len") >= _FAILURES)
    return often.get_column("ip").sort().to_list()


def block(settings: Settings, history: DemoHistory, addresses: list[str]) -> None:
    """Set them, valid from some hours after the beginning; the record arrives before all events."""
    begins = from_microseconds(history.begins + _BLOCKED_AT * _HOUR)
    order = Order(addresses, is_set=True, valid_from=begins, author=AUTHOR, reason="logins fail there")
    change_table(settings, TABLE, [order], history.begins - _HOUR)


def unblock(settings: Settings, history: DemoHistory, addresses: list[str]) -> None:
    """Remove them when rules are changed, valid from when these take effect."""
    ends = from_microseconds(history.change_holds)
    order = Order(addresses, is_set=False, valid_from=ends, author=AUTHOR, reason="given to other customers")
    change_table(settings, TABLE, [order], history.change_published)
