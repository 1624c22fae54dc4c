"""The manifest of a run: what is written is read back, and what is none is None."""

import json
from datetime import date
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nightjar.contracts.run_manifest import RUN_MANIFEST, RunManifest, RunState, read_manifest
from nightjar.lake.tables import RUNS

WHOLE = RunManifest(
    "run-1",
    date(2026, 1, 5),
    RunState.FINISHED,
    1_000_000,
    2_000_000,
    3_000_000,
    ("busy",),
    {"customer_id": ("ann",)},
    {"alerts": 4},
    {("card velocity", 2): "2026-01-01T00:00:00Z", ("waits", 1): None},
    {"outcomes": {"matched": 7}},
    {"gate": 0.5},
    "1 correction was held back",
)
BARE = RunManifest("run-2", date(2026, 1, 6), RunState.FAILED, 1, 2)


@pytest.mark.parametrize("manifest", [WHOLE, BARE])
def test_a_manifest_comes_back_from_its_row(manifest: RunManifest) -> None:
    """Of a run that finished, and of one that failed before it read anything."""
    row = manifest.row()
    assert list(row) == list(RUNS.columns) == list(RUN_MANIFEST.members)
    assert read_manifest(row) == manifest


@pytest.mark.parametrize("manifest", [WHOLE, BARE])
def test_a_row_as_a_record_matches_the_schema(manifest: RunManifest) -> None:
    """Its JSON columns are objects and lists there."""
    row = manifest.row()
    record: dict[str, Any] = RUN_MANIFEST.record(row | {"day": row["day"].isoformat()})
    Draft202012Validator(RUN_MANIFEST.json_schema()).validate(json.loads(json.dumps(record)))
    assert record["counts"] == manifest.counts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("day", None),
        ("state", "running"),
        ("finished_at", None),
        ("rules", "[1]"),
        ("rules", '{"busy": null}'),
        ("counts", "{"),
        ("only_groups", "3"),
        ("only_rules", "3"),
    ],
)
def test_what_is_no_manifest_is_none(name: str, value: Any) -> None:
    """Nothing is raised."""
    assert read_manifest(WHOLE.row() | {name: value}) is None
