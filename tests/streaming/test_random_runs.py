"""Random runs of the job: what its operator emits at each step, what the backfill of the run leaves, and how alerts are
explained then.

`checks/soak/truth.py` does this for thousands of runs.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings

from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text
from tests.support.group_host import GroupHost
from tests.support.histories import SECOND, asking, declared
from tests.support.random_cases import as_listed
from tests.support.random_runs import Batch, Listed, Published, Restart, Run, runs, script
from tests.support.reference import Event, Measure, Version
from tests.support.run_agreement import RunAgreement

BEGIN = 1000 * 60 * SECOND
# A run is much to draw, and takes its time on a busy machine; checks/soak/truth.py searches and shrinks.
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(suppress_health_check=LARGE, phases=(Phase.generate,))
@given(runs())
def test_the_job_emits_what_the_oracle_allows_and_the_night_explains_the_rest(run: Run) -> None:
    """However partitions are read, clocks go, rules come, and settings change between restarts."""
    complaints = RunAgreement(run, explained=3).complaints
    assert not complaints, script(run, complaints)


@settings(suppress_health_check=LARGE, phases=(Phase.generate,))
@given(runs())
def test_it_does_in_real_time(run: Run) -> None:
    """The same in groups of batches that last, with crashes between them."""
    complaints = RunAgreement(run, host=GroupHost).complaints
    assert not complaints, script(run, complaints)


def test_a_rule_that_was_published_paused_gets_its_shuffle_key_when_it_is_resumed() -> None:
    """Else a restart would make the key, no answer would say when, and what windows lack then would be unexplained."""
    stream = of_places("10s")
    begin, minute = BEGIN, 60 * SECOND
    told = {"author": "ann", "reason": "a test"}
    # its window keeps the state of the entity, and so the horizon, well before the key
    long = {"id": "two", "stream": stream.name, "group_by": ["who"], "when": "n >= 30"} | told
    long["measures"] = {"n": {"count": "*", "over": "2h"}}
    by_place = {"id": "one", "stream": stream.name, "group_by": ["place"], "when": "n >= 3", "state": "paused"} | told
    by_place["measures"] = {"n": {"count": "*", "over": "10m"}}
    messages = [
        Published(0, begin, long, version=counting("two", "who", 120 * minute, 30)),
        Published(1, begin, by_place, version=counting("one", "place", 10 * minute, 3)),
        Published(2, begin + 2 * minute, {"control": "resume", "rule": "one"} | told),
    ]
    restart = Restart(0, stream.allowed_lateness)
    batches = [
        Batch(
            at,
            [m for m in messages if at - minute < m.arrival <= at],
            [paid(number, at)],
            at,
            again=False,
            history="both",
        )
        for number, at in enumerate(range(begin, begin + 6 * minute, minute))
    ]
    judged = agreeing(Run(stream, [restart, *batches[:2], restart, *batches[2:]]))
    assert judged.counts["shuffle_keys"] == 1
    assert judged.counts["cause_cold_start"] > 0


def test_a_shuffle_key_that_is_primed_takes_over_what_the_stream_has_settled() -> None:
    """Where clocks were ahead before it was made, it would evaluate events whose windows it lacks."""
    stream = of_places("0s")
    told = twice_in_a_place(stream, 10, 30, 7)
    restart = Restart(0, 0)

    def batch(seconds: int, clock: int, messages: list[Published] | None = None, history: str = "") -> Batch:
        at = BEGIN + seconds * SECOND
        return Batch(at, messages or [], [paid(seconds, at)], BEGIN + clock * SECOND, again=False, history=history)

    steps = [
        *(restart, batch(0, 0), batch(10, 110, [told])),
        *(restart, batch(11, 11), batch(12, 12, history="both"), batch(13, 13, history="both")),
        *(batch(seconds, seconds) for seconds in range(20, 160, 10)),
    ]
    judged = agreeing(Run(stream, steps, primes=True))
    assert judged.counts["primed_shuffle_keys"] == 1
    assert judged.counts["alerts"] > 0


def test_of_two_events_of_an_id_the_one_that_a_shuffle_key_had_first_stays() -> None:
    """Also after a restart: the history that it is primed with has the other one, which happened later."""
    stream = of_places("10s")
    told = twice_in_a_place(stream, 2, 3)

    def batch(seconds: int, name: str, ahead: int = 0, history: str = "") -> Batch:
        at = BEGIN + seconds * SECOND
        messages = [told] if told.arrival == at else []
        event = {**paid(seconds, at), "id": name, "at": at + ahead * SECOND}
        return Batch(at, messages, [event], at, again=False, history=history)

    steps = [
        *(Restart(0, stream.allowed_lateness), batch(1, "twice", ahead=2), batch(2, "e2")),
        *(batch(3, "twice", -1, "export"), batch(4, "e4", history="export"), batch(5, "e5", history="both")),
        *(Restart(0, stream.allowed_lateness), batch(6, "e6"), batch(7, "e7")),
    ]
    judged = agreeing(Run(stream, steps, primes=True))
    assert judged.counts["primed_shuffle_keys"] == 1


def test_history_sees_the_changes_of_tables_that_had_arrived_when_it_did() -> None:
    """Whatever was known when the stream read it: it is read again from the lake, which does not say that."""
    stream = asking(of_places("10s"))
    rule = twice_in_a_place(stream, 2, 30)
    assert rule.version is not None
    measures = {"n": replace(rule.version.measures["n"], where=lambda row: row["(who IN listed)"] is True)}
    of_listed = rule.written["measures"]["n"] | {"where": "who IN listed"}
    told = replace(
        rule,
        written=rule.written | {"when": "n >= 1", "measures": {"n": of_listed}},
        version=replace(rule.version, measures=measures, when=lambda row: row["n"] >= 1),
    )
    # valid since before, and read with the event that had arrived earlier
    change = Listed(0, BEGIN + 2 * SECOND, (["w1"], True, BEGIN, [None]))

    def batch(seconds: int, *read: int, history: str = "") -> Batch:
        at = BEGIN + seconds * SECOND
        known = [change] if seconds >= 2 else []
        events = [as_listed(stream, paid(n, BEGIN + n * SECOND), [each.change for each in known]) for n in read]
        messages, changes = ([told], known) if seconds == 2 else ([], [])
        return Batch(at, messages, events, at, again=False, history=history, changes=changes)

    steps = [
        *(Restart(0, stream.allowed_lateness), batch(0, 0), batch(2, 1, 2), batch(3, 3, history="export")),
        *(batch(4, 4, history="export"), batch(5, 5, history="both")),
        *(Restart(0, stream.allowed_lateness), batch(6, 6), batch(7, 7)),
    ]
    judged = agreeing(Run(stream, steps, primes=True))
    assert judged.counts["primed_shuffle_keys"] == 1
    assert judged.counts["alerts"] == 0
    assert judged.counts["cause_reference_changed"] > 0


def agreeing(run: Run) -> RunAgreement:
    """What has been compared of a run, of which nothing is wrong."""
    judged = RunAgreement(run)
    assert not judged.complaints, script(run, judged.complaints)
    return judged


def of_places(allowed_lateness: str) -> Stream:
    """A stream that rules group by a field for which the job has to make a shuffle key."""
    return declared(
        ("who", "place"),
        event_id="id",
        event_time="at",
        allowed_lateness=allowed_lateness,
        max_future_skew="2s",
        entities=("who",),
    )


def twice_in_a_place(stream: Stream, at: int, over: int, resolution: int = 0) -> Published:
    """A rule that comes at so many seconds, and applies since BEGIN; its window, and resolution, in seconds."""
    measure = {"count": "*", "over": f"{over}s"} | ({"resolution": f"{resolution}s"} if resolution else {})
    written = {"id": "two", "stream": stream.name, "group_by": ["place"], "when": "n >= 2", "measures": {"n": measure}}
    written |= {"author": "ann", "reason": "a test", "effective": iso_text(BEGIN)}
    measures = {"n": Measure("count", None, over * SECOND, resolution=resolution * SECOND)}
    version = Version("two", 1, BEGIN, ("place",), measures, lambda row: row["n"] >= 2)
    return Published(0, BEGIN + at * SECOND, written, BEGIN, version)


def counting(rule_id: str, group_by: str, over: int, most: int) -> Version:
    """What a rule that counts is to the reference."""
    measures = {"n": Measure("count", None, over)}
    return Version(rule_id, 1, 0, (group_by,), measures, lambda row: row["n"] >= most, active=rule_id == "two")


def paid(number: int, at: int) -> Event:
    """An event of somebody else each, at one place."""
    own = {"id": f"e{number}", "who": f"w{number}", "place": "p"}
    return {**own, "at": at, "arrival": at, "partition": 0, "offset": number}
