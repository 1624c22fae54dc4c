"""Whether the broker that this folder's `nightjar up` has started is running, by what it has recorded there."""

from pathlib import Path

from nightjar.processes.process import Record

RECORD, PORT = "broker.json", "port"


def runs(kafka_dir: Path, port: int) -> bool:
    """Whether the broker of this folder runs, on this port."""
    try:
        recorded = (kafka_dir / PORT).read_text().strip()
    except OSError:
        return False
    return recorded == str(port) and "broker" in Record(kafka_dir / RECORD).running
