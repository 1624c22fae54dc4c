"""What is wrong with the job, for whoever is woken up."""

from nightjar.operations.status import JobStatus


def problems(status: JobStatus, *, behind: float, skew: float) -> list[str]:
    """Each problem with its remedy; none if all is well.

    behind: seconds that events may wait; skew: seconds that the clock of the job's host may differ from the brokers'.
    """
    if status.last is None:
        return ["the job has never reported. Start it: nightjar stream"]
    if not status.running:
        age = status.heartbeat_seconds or 0.0
        silent = f"the job is silent: its last report is {age:,.0f} s old, its state was {status.last['state']}. "
        return [f"{silent}Its log has the cause; start it again: nightjar stream. It resumes where it stopped"]
    found = []
    for stream, lag in sorted(status.last["lag"].items()):
        if lag["seconds"] > behind:
            found.append(
                f"stream {stream} is {lag['seconds']:,.0f} s behind ({lag['events']:,} events wait): alerts come late. "
                "nightjar status shows whether it catches up; docs/how-to/sizing.md, what a core can do"
            )
    off = (status.last.get("skew") or 0) / 1_000_000
    if abs(off) > skew:
        found.append(
            f"the clock of the job's host is {off:+,.1f} s off the brokers' clock. It decides nothing, but times in "
            "logs and latencies mislead: see to its time synchronisation"
        )
    return found
