"""Every case file, and the case of every rule in the catalogue, on every host: the same rules and events come to the
same alerts, and the night puts them right.

The bare engine plays each by itself. On Kafka, Spark and Delta a job, an archive and a backfill play all of them
together (see together.py), once a test session and setting of approvals; each test looks at its own case's share.
"""

import contextlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from nightjar.backfill.config import RunRequest
from nightjar.backfill.run import Run
from nightjar.backfill.staging import CORRECTED, EVALUATED, HELD_BACK, OUTCOMES
from nightjar.cases import Case, CaseOutcome, ExpectedOutcome, check, find_cases, load_case
from nightjar.cases.model import final_alerts
from nightjar.cases.simulate import simulate
from nightjar.catalogue import catalogue
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import correction_record
from nightjar.expectations.findings import GateError
from nightjar.kafka import topics
from nightjar.lake.scanning import parquet
from nightjar.local.kafka import LocalKafka
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from tests.support.job_host import NEVER, CaseRun, streamed
from tests.support.together import Together
from tests.support.topics import in_folders_of_its_own
from tests.support.unions import with_members

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = find_cases([Path(__file__).with_name("cases")])
# By the rule's id, which stands for a path.
CATALOGUE = {Path(entry.id): entry.case for entry in catalogue()}
CASES = [*FILES, *CATALOGUE]
on_services = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

# An alert's content. Its id is a hash of the rule's, which has a mark where cases are played together.
CONTENT = [
    "rule_id",
    "rule_version",
    "rule_state",
    "stream",
    "group",
    "event_id",
    "event_time",
    "measures",
    "severity",
    "text",
    "muted",
]


def case_of(path: Path) -> Case:
    """The case of a file, or of a rule in the catalogue."""
    return CATALOGUE.get(path) or load_case(path)


@dataclass(frozen=True)
class Streamed:
    """What the job made of each case, and where it left it."""

    cases: Together
    settings: Settings
    streams: Mapping[str, Stream]
    outcomes: Mapping[str, CaseOutcome]


@pytest.fixture(scope="session")
def jobs(
    request: pytest.FixtureRequest,
    spark: "SparkSession",
    broker: LocalKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Streamed]:
    """All cases that are asked for, played on jobs in micro-batches."""
    return on_jobs(request, spark, broker, tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="session")
def real_time(
    request: pytest.FixtureRequest,
    spark: "SparkSession",
    broker: LocalKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, CaseOutcome]:
    """What jobs in real time make of the cases. A step's events are in one group, as they are in one micro-batch."""
    how = {"latency": "real-time", "real_time_batch": 1_000_000, "gather": 200_000}
    played = on_jobs(request, spark, broker, tmp_path_factory.mktemp("real-time"), **how)
    return {origin: outcome for job in played for origin, outcome in job.outcomes.items()}


def on_jobs(
    request: pytest.FixtureRequest, spark: "SparkSession", broker: LocalKafka, folder: Path, **how: Any
) -> list[Streamed]:
    """All cases that are asked for; those that ask for approvals on a job of their own. how: changes of the job's
    configuration."""
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = {of["path"] for of in params if of.get("path") in CASES}
    by_approvals: dict[int, list[Case]] = {}
    for case in (case_of(path) for path in CASES if path in wanted):
        by_approvals.setdefault(case.settings.approvals, []).append(case)
    return [
        on_job(spark, broker, folder / str(approvals), Together.of(cases), approvals, **how)
        for approvals, cases in by_approvals.items()
    ]


def on_job(
    spark: "SparkSession", broker: LocalKafka, folder: Path, cases: Together, approvals: int, **how: Any
) -> Streamed:
    """Cases that ask for so many approvals, played together."""
    own = uuid.uuid4().hex[:8]
    named = {name: f"{own}-{value}" for name, value in broker.settings.model_dump().items() if name.endswith("_topic")}
    small = {"arrival": "producer", "partitions": 1, "buckets": 2, "warm_up_batches": 0}
    given = {"bootstrap_servers": broker.bootstrap, "data_dir": folder, "approvals": approvals}
    given["alerts_per_rule_and_hour"] = 2  # marks alerts of all cases, which one looks at
    settings = in_folders_of_its_own(broker.settings.model_copy(update={**named, **small, **given}), own)
    streams = with_members(
        {name: replace(stream, topic=f"{own}-{stream.topic}") for name, stream in cases.streams.items()}
    )
    topics.ensure(settings, streams.values())
    with CaseRun(spark, settings, streams, clock_interval=NEVER, **how) as run:
        outcomes = streamed(run, cases)
        run.await_reported()
    return Streamed(cases, settings, streams, {p.case.origin: o for p, o in zip(cases.parts, outcomes, strict=True)})


@pytest.fixture(scope="session")
def outcomes(jobs: list[Streamed]) -> Mapping[str, CaseOutcome]:
    """What the job made of each case."""
    return {origin: outcome for job in jobs for origin, outcome in job.outcomes.items()}


@pytest.fixture(scope="session")
def night(spark: "SparkSession", jobs: list[Streamed]) -> Mapping[str, CaseOutcome]:
    """What a backfill of all those days says after the job: alerts are the truth, corrections what the job missed."""
    return {origin: outcome for job in jobs for origin, outcome in after(spark, job).items()}


def after(spark: "SparkSession", job: Streamed) -> Mapping[str, CaseOutcome]:
    """What a backfill says after one job."""
    config = backfill_config(job.settings, job.streams)
    steps = [step.at for part in job.cases.parts for step in part.case.steps]
    first = from_microseconds(min(steps)).date() - timedelta(days=1)
    days = (from_microseconds(max(steps)).date() - first).days + 1
    request = RunRequest("cases", first, days=days)
    run = Run(spark, config, request)
    run.do("archive")
    run.do("evaluate")
    with contextlib.suppress(GateError):  # what it refuses is held against each case below
        run.do("reconcile")

    def staged(name: str) -> pl.DataFrame:
        return parquet(request.staged(config.lake) / name / "*.parquet").collect()

    violations = staged(EVALUATED).filter(pl.col("failed").is_null()).to_dicts()
    # those that are held back have a cause that no case expects
    found = pl.concat([staged(CORRECTED), staged(HELD_BACK).drop("outcome")])
    wrong = [correction_record(row, 0) for row in found.to_dicts()]
    differing = set(staged(OUTCOMES).filter(pl.col("outcome") != "matched").get_column("alert_id"))
    assert differing == {record["alert_id"] for record in wrong}

    def own(rows: list[dict[str, Any]], part: Any) -> list[dict[str, Any]]:
        return [part.own(row) for row in rows if part.owns(row["rule_id"])]

    truth = [correction_record({**row, "revision": 1, "kind": "alert", "cause": None}, 0) for row in violations]
    return {
        part.case.origin: CaseOutcome(alerts=own(truth, part), corrections=own(wrong, part)) for part in job.cases.parts
    }


@pytest.fixture(
    params=["engine", *(pytest.param(name, marks=on_services) for name in ("spark", "real-time", "backfill"))]
)
def host(request: pytest.FixtureRequest) -> str:
    """Who plays the case."""
    return str(request.param)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_comes_out_as_it_says(request: pytest.FixtureRequest, host: str, path: Path) -> None:
    """Each case expects something, and it is what comes; who names no corrections expects none."""
    case = case_of(path)
    assert case.expect.rows or case.expect.state
    outcome, expect = played(request, host, case)
    assert [difference.as_dict() for difference in check(expect, outcome)] == []


def played(request: pytest.FixtureRequest, host: str, case: Case) -> tuple[CaseOutcome, ExpectedOutcome]:
    """What comes of a case, and what of its expectation the host can be held to."""
    rows = {"corrections": [], **case.expect.rows}
    if host == "engine":
        return simulate(case), ExpectedOutcome(rows, case.expect.state)
    if host == "backfill":
        return request.getfixturevalue("night")[case.origin], ExpectedOutcome({"corrections": rows["corrections"]})
    # The job emits by the wall clock, lets go when its own clock says so, and leaves corrections to the night.
    del rows["corrections"]
    timeless = {name: [{k: v for k, v in row.items() if k != "emitted_at"} for row in of] for name, of in rows.items()}
    outcomes = request.getfixturevalue("outcomes" if host == "spark" else "real_time")
    return outcomes[case.origin], ExpectedOutcome(timeless)


@pytest.mark.parametrize("path", [pytest.param(path, marks=on_services, id=path.stem) for path in CASES])
def test_hosts_agree_row_by_row(
    outcomes: Mapping[str, CaseOutcome], night: Mapping[str, CaseOutcome], path: Path
) -> None:
    """S9: the job's alerts are the engine's, and with the corrections they are the backfill's violations.

    Of rules with `revisions: verdict` the values of violations are the true ones, and the alerts' of an earlier time.
    """
    case = case_of(path)
    engine, stream, truth = simulate(case), outcomes[case.origin], night[case.origin]
    revised = [*CONTENT, "revision", "kind"]
    assert contents(stream.alerts, revised) == contents(engine.alerts, revised)
    assert contents(truth.corrections, [*revised, "cause"]) == contents(engine.corrections, [*revised, "cause"])
    verdict_only = any(b'"revisions": "verdict"' in message for step in case.steps for message in step.rules)
    same = [name for name in CONTENT if not (verdict_only and name in ("measures", "text"))]
    assert contents(truth.alerts, same) == contents(final_alerts([*engine.alerts, *engine.corrections]), same)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_playing_cases_together_changes_none(path: Path) -> None:
    """What comes of a marked case is, without the marks, what comes of the case."""
    case = case_of(path)
    together = Together.of([case])
    (part,) = together.parts
    alone, marked = simulate(case), simulate(replace(case, steps=tuple(part.steps), streams=together.streams))
    for name, keys in {
        "alerts": CONTENT,
        "corrections": CONTENT,
        "late": ["stream", "event_id"],
        "quarantine": ["reason"],
    }.items():
        assert contents([part.own(row) for row in getattr(marked, name)], keys) == contents(getattr(alone, name), keys)


def contents(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    """These columns of the rows as text, sorted."""
    return sorted(json.dumps({name: row[name] for name in names}, sort_keys=True) for row in rows)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_case_reads_like_documentation(path: Path) -> None:
    """It has a title and a description of its own, and fits a screen."""
    case = load_case(path)
    assert case.title != path.stem
    assert len(case.description) > 40
    assert len(path.read_text().splitlines()) <= 60
