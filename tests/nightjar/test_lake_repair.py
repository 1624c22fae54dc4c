"""`nightjar lake repair`: what a person on call sees and does."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.configuration.settings import load_settings
from nightjar.lake import delta
from nightjar.lake.tables import events_table
from nightjar.operations.lake_upkeep import repair
from nightjar.operations.locks import sole_writer
from nightjar.rules.errors import NightjarError
from tests.support.command import run
from tests.support.lakes import STREAM, add, at, config_of

DAY = date(2026, 1, 5)
EVENTS = events_table(STREAM)
PLACES = "(partition 0, offset 0; partition 0, offset 1; partition 0, offset 2)"
REPAIR = ("lake", "repair", "--day", "2026-01-05")


def payment(offset: int) -> dict[str, Any]:
    """A row of the table of events."""
    when = at(5, 10, offset)
    return {
        "transaction_id": f"t{offset}",
        "event_time": when,
        "customer_id": "ann",
        "terminal_id": "m",
        "amount": Decimal(offset),
        "arrival_time": when,
        "arrival_date": when.date(),
        "partition": 0,
        "offset": offset,
    }


@pytest.fixture
def config(tmp_path: Path) -> BackfillConfig:
    """Five payments, three of them twice."""
    made = config_of(tmp_path / "lake")
    add(made, EVENTS, [payment(number) for number in range(5)])
    add(made, EVENTS, [payment(number) for number in range(3)])
    return made


def given(config: BackfillConfig, **more: str) -> dict[str, str]:
    """The environment of the command."""
    return {"NIGHTJAR_LAKE_DIR": str(config.lake.root), **more}


@pytest.mark.slow
def test_a_repair_is_shown_before_it_is_made(config: BackfillConfig) -> None:
    """--dry-run is the default; --yes repairs, and after that there is nothing to do."""
    before = delta.version(config.lake.root, EVENTS)
    shown = run(*REPAIR, environment=given(config)).stdout
    assert run(*REPAIR, "--dry-run", environment=given(config)).stdout == shown
    assert shown.splitlines() == [
        f"events_transactions version {before}: 8 rows of 2026-01-05",
        "    3 rows too many: several for the same partition and offset " + PLACES,
        f"    would be repaired: duplicates go: 8 rows become 5; version {before} stays readable",
        "Nothing was changed. Repeat the command with --yes to repair 1 table.",
    ]
    assert delta.version(config.lake.root, EVENTS) == before
    done = run(*REPAIR, "--yes", environment=given(config)).stdout
    assert f"repaired: duplicates go: 8 rows become 5; version {before} stays readable" in done
    assert "Run the night again: `nightjar backfill --day 2026-01-05`" in done
    assert run(*REPAIR, environment=given(config)).stdout.splitlines() == [
        f"events_transactions version {before + 1}: 5 rows of 2026-01-05, whole",
        "Nothing is to be repaired.",
    ]


@pytest.mark.slow
def test_what_cannot_be_repaired_is_exit_code_1(config: BackfillConfig) -> None:
    """With the reason, as text and as JSON."""
    add(config, EVENTS, [payment(7) | {"transaction_id": None}])
    shown = run(*REPAIR, "--yes", code=1, environment=given(config)).stdout
    assert "cannot be repaired: version" in shown
    assert "must come from a backup of the lake" in shown
    only = ("--table", EVENTS.name, "--json")
    (found,) = json.loads(run(*REPAIR, *only, code=1, environment=given(config)).stdout)
    assert (found["table"], found["rows"], found["rows_after"], found["repaired"]) == (EVENTS.name, 9, None, False)
    assert "a usable record has an event id" in found["refused"]


@pytest.mark.parametrize(
    ("day", "tables", "version", "message"),
    [
        (DAY, ["event_transactions"], None, "Did you mean events_transactions?"),
        (DAY, ["rules"], None, "Leave out --day"),
        (None, [EVENTS.name], None, "Name one with --day"),
        (None, [], None, "Write --day 2026-11-20"),
        (DAY, [], 1, "Name it: --table"),
        (None, ["rules"], None, "the table does not exist"),
        (DAY, [EVENTS.name], 99, "has no version 99 before its newest"),
    ],
)
def test_what_is_asked_wrongly_is_an_error(
    config: BackfillConfig, day: date | None, tables: list[str], version: int | None, message: str
) -> None:
    """With its remedy."""
    with pytest.raises(NightjarError, match=message):
        list(repair(load_settings(), config, day, tables, version, now=0, dry_run=True))


@pytest.mark.slow
def test_nobody_else_may_write_meanwhile(config: BackfillConfig) -> None:
    """A backfill that runs is not disturbed; looking is possible."""
    with sole_writer(config.lake.root):
        assert "already running" in run(*REPAIR, "--yes", code=2, environment=given(config)).stderr
        assert "8 rows become 5" in run(*REPAIR, environment=given(config)).stdout


@pytest.mark.slow
def test_a_day_that_retention_removes_is_not_restored(config: BackfillConfig) -> None:
    """Its rows are missing on purpose."""
    removed = given(config, NIGHTJAR_LAKE_RETENTION='{"events": "60d"}')
    assert "lake_retention removes this day" in run(*REPAIR, code=2, environment=removed).stderr
