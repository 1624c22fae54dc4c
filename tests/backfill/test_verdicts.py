"""When a run refuses to continue, in small lakes."""

from datetime import date
from pathlib import Path

import pytest

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.publish.results import pending_alerts
from nightjar.backfill.publish.verdicts import (
    HeldBackError,
    NotArchivedError,
    OutdatedError,
    refuse_outdated,
    refuse_unarchived,
)
from nightjar.backfill.staging import Notes
from nightjar.lake import delta
from nightjar.lake.tables import ARCHIVES, RECONCILIATION, RUNS
from nightjar.rules.timestamps import microseconds
from tests.support.lakes import add, add_run, at, config_of

REQUEST = RunRequest("own", date(2026, 1, 5))


def run_of(config: BackfillConfig) -> RunInputs:
    """A run that reads the lake now."""
    return RunInputs(config, REQUEST, Notes(0, 0, {RUNS.name: delta.version(config.lake.root, RUNS)}, []))


def test_a_day_is_refused_until_the_archive_has_passed_its_cut(tmp_path: Path) -> None:
    """Whatever the host's clock: what counts is how far the archive has come, which the error states."""
    config, cut = config_of(tmp_path), microseconds(at(6, 0, 10))
    with pytest.raises(NotArchivedError, match="the archive has not run yet"):
        refuse_unarchived(config, REQUEST, cut)
    add(config, ARCHIVES, [{"until": at(6, 0, 9)}])
    with pytest.raises(NotArchivedError, match=r"come to 2026-01-06T00:09:00.000000Z.*until 2026-01-06T00:10:00"):
        refuse_unarchived(config, REQUEST, cut)
    add(config, ARCHIVES, [{"until": at(6, 0, 10)}])
    add(config, ARCHIVES, [{"until": at(5)}])
    refuse_unarchived(config, REQUEST, cut)


def test_a_run_that_another_has_overtaken_is_refused(tmp_path: Path) -> None:
    """Whichever day the other was about; its own earlier end, failures and dry runs do not count."""
    config = config_of(tmp_path)
    add_run(config, date(2026, 1, 4), at(5, 1))
    run = run_of(config)
    add_run(config, date(2026, 1, 5), at(6, 1), run_id="own")
    add_run(config, date(2026, 1, 6), at(6, 2), run_id="other", state="failed")
    add_run(config, date(2026, 1, 6), at(6, 3), run_id="other", state="dry run")
    refuse_outdated(run)
    add_run(config, date(2026, 1, 6), at(7, 1), run_id="next")
    with pytest.raises(OutdatedError, match=r"next finished since this run read the lake.*evaluate"):
        refuse_outdated(run)
    refuse_outdated(run_of(config))


def test_alerts_that_are_left_to_the_stream_are_pending_until_another_outcome(tmp_path: Path) -> None:
    """Of each alert the row of the latest day before the run's counts."""
    config = config_of(tmp_path)
    row = {
        "rule_id": "r",
        "rule_version": 1,
        "stream": "transactions",
        "group": '{"customer_id":"ann","ip":"::1"}',
        "outcome": "missed",
        "cause": "stream_down",
    }

    def judged(day: int, alert: str, **changed: object) -> None:
        add(config, RECONCILIATION, [{**row, "day": date(2026, 1, day), "alert_id": alert, **changed}])

    judged(3, "matched later", event_time=at(3))
    judged(4, "matched later", event_time=at(3), outcome="matched", cause=None)
    judged(3, "withdrawn later", event_time=at(3))
    judged(4, "withdrawn later", event_time=at(3), outcome="withdrawn", cause=None)
    judged(3, "late", event_time=at(3), cause="late_event")
    judged(3, "twice", event_time=at(3, 1))
    judged(4, "twice", event_time=at(3, 1))
    judged(4, "other", event_time=at(4, 2))
    judged(4, "whole", event_time=at(4, 3), group="{}")
    judged(5, "of the day itself", event_time=at(5))

    assert set(pending_alerts(config, date(2026, 1, 5))["alert_id"]) == {"twice", "other", "whole"}
    assert pending_alerts(config, date(2026, 1, 3)).height == 0


def test_a_list_of_held_back_alerts_cannot_be_forged_and_has_an_end(tmp_path: Path) -> None:
    """Ids and groups come from events; the rest of a long list is counted."""
    alert = {
        "alert_id": "a",
        "rule_id": "r",
        "rule_version": 1,
        "group": '{"customer_id":"x\ny"}',
        "event_id": "e\x1b[2K",
        "outcome": "missed",
    }
    text = str(HeldBackError([alert] * 102, where="day 2026-01-05", folder=tmp_path))
    assert text.splitlines()[:2] == [
        "day 2026-01-05: 102 corrections were held back: nobody knows why the alerts differ from the stream's",
        '- alert a: missed, rule r version 1, group {"customer_id":"x\\ny"}, event e\\x1b[2K',
    ]
    assert text.splitlines()[-2] == "- and 2 more"
    assert text.splitlines()[-1].startswith("Everything else of the day is done.")
