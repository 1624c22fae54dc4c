"""Health checks of the containers, with the standard library where it suffices: a check must cost next to nothing.

python deploy/compose/health.py port HOST PORT          somebody listens there python deploy/compose/health.py job
SECONDS             the job has committed a batch so recently, and since it was started python deploy/compose/health.py
airflow COMPONENT       Airflow reports the component as healthy python deploy/compose/health.py metrics [PORT [PAGE]]
`nightjar metrics`, or what else serves metrics on the port, reports itself as healthy
"""

import json
import os
import socket
import ssl
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nightjar.storage.paths import AnyPath

SECONDS = 5.0
AIRFLOW = Path("/run/secrets/airflow")
NIGHTJAR = Path("/run/secrets/nightjar")


def port(host: str, number: str) -> None:
    """Raises OSError if nobody listens."""
    socket.create_connection((host, int(number)), SECONDS).close()


def job(seconds: str) -> None:
    """Raises if it committed no batch for so long, or none since the container was started."""
    import psutil

    from nightjar.storage.paths import place_of
    from nightjar.streaming.state.epochs import METADATA, QUERY, own_folder

    settings = tomllib.loads(Path(os.environ["NIGHTJAR_SETTINGS"]).read_text())
    checkpoint = place_of(settings["checkpoint_dir"], settings.get("storage_options", {}))
    own = own_folder(checkpoint, None)
    # In an object store a job begins with a copy of what the one before it has committed; its metadata is copied last.
    started = max(psutil.Process(1).create_time(), _changed_at(own / METADATA))
    since = max(started, time.time() - float(seconds))
    if _changed_at(own / QUERY / "commits") <= since:
        raise RuntimeError(f"no batch was committed in {checkpoint} for {time.time() - since:.0f} s")


def airflow(component: str) -> None:
    """Raises if it is not healthy, or no API server answers."""
    trust = ssl.create_default_context(cafile=AIRFLOW / "ca.pem")
    found = json.loads(_get("https://airflow:8080/api/v2/monitor/health", trust))
    if (state := found[component]["status"]) != "healthy":
        raise RuntimeError(f"{component} is {state}")


def metrics(number: str = "9464", page: str = "healthz") -> None:
    """Raises if what serves metrics on this port does not answer, or reports a problem."""
    trust = ssl.create_default_context(cafile=NIGHTJAR / "ca.pem")
    trust.load_cert_chain(NIGHTJAR / "tls.pem")
    _get(f"https://localhost:{number}/{page}", trust)


def _changed_at(place: "AnyPath") -> float:
    """When a file, or one in a folder, was written last, in seconds since the epoch; 0: it is missing."""
    if isinstance(place, Path):
        return place.stat().st_mtime if place.exists() else 0.0
    found = place.changed_at()
    return found.timestamp() if found else 0.0


def _get(url: str, trust: ssl.SSLContext) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with opener.open(url, timeout=SECONDS) as answer:
        content: bytes = answer.read()
    return content


if __name__ == "__main__":
    try:
        {"port": port, "job": job, "airflow": airflow, "metrics": metrics}[sys.argv[1]](*sys.argv[2:])
    except (OSError, RuntimeError, KeyError, ValueError) as failure:
        sys.exit(f"unhealthy: {failure!r}")
