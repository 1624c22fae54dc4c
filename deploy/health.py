"""Health checks of the containers, with the standard library only: a check must cost next to nothing.

python deploy/health.py port HOST PORT          somebody listens there
python deploy/health.py recent FOLDER SECONDS   a file in the folder changed so recently
python deploy/health.py airflow COMPONENT       Airflow reports the component as healthy
python deploy/health.py metrics                 `nightjar metrics` reports itself as healthy
"""

import json
import socket
import ssl
import sys
import time
import urllib.request
from pathlib import Path

SECONDS = 5.0
AIRFLOW = Path("/run/secrets/airflow")
NIGHTJAR = Path("/run/secrets/nightjar")


def port(host: str, number: str) -> None:
    """Raises OSError if nobody listens."""
    socket.create_connection((host, int(number)), SECONDS).close()


def recent(folder: str, seconds: str) -> None:
    """Raises if no file changed for so long."""
    newest = max((file.stat().st_mtime for file in Path(folder).glob("**/commits/*")), default=0.0)
    if time.time() - newest > float(seconds):
        raise RuntimeError(f"no batch was committed below {folder} for {seconds} s")


def airflow(component: str) -> None:
    """Raises if it is not healthy, or no API server answers."""
    trust = ssl.create_default_context(cafile=AIRFLOW / "ca.pem")
    found = json.loads(_get("https://airflow:8080/api/v2/monitor/health", trust))
    if (state := found[component]["status"]) != "healthy":
        raise RuntimeError(f"{component} is {state}")


def metrics() -> None:
    """Raises if it does not answer, or reports a problem."""
    trust = ssl.create_default_context(cafile=NIGHTJAR / "ca.pem")
    trust.load_cert_chain(NIGHTJAR / "tls.pem")
    _get("https://localhost:9464/healthz", trust)


def _get(url: str, trust: ssl.SSLContext) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with opener.open(url, timeout=SECONDS) as answer:
        content: bytes = answer.read()
    return content


if __name__ == "__main__":
    try:
        {"port": port, "recent": recent, "airflow": airflow, "metrics": metrics}[sys.argv[1]](*sys.argv[2:])
    except (OSError, RuntimeError, KeyError, ValueError) as failure:
        sys.exit(f"unhealthy: {failure!r}")
