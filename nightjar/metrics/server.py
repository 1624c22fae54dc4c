"""The HTTP endpoint: `/metrics` for Prometheus, `/healthz` for a supervisor, `/readyz` for whoever waits for the job.

Anybody who reaches the endpoint sees names of rules and numbers. So it listens on this machine only, or asks every
client for a certificate.
"""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from nightjar.configuration.settings import Settings

_log = structlog.get_logger(__name__)

# A client that says nothing for so long (seconds) is left.
_PATIENCE = 10.0

# Why something is not well; None if it is.
Check = Callable[[], str | None]


@dataclass(frozen=True)
class Endpoint:
    """Where to listen. tls: certificate, key and the authority of clients' certificates; None: this machine only."""

    host: str
    port: int
    tls: tuple[Path, Path, Path] | None

    @classmethod
    def of(cls, settings: Settings, port: int | None = None) -> Endpoint:
        """The endpoint of the settings. port: another than `metrics_port`.

        Raises:
            SettingsError: strangers could read it.
        """
        files = settings.metrics_certificate, settings.metrics_key, settings.metrics_client_ca
        given = [file for file in files if file is not None]
        for file in given:
            if not file.is_file():
                raise SettingsError("is not a file", where=str(file), remedy="Give the path of a PEM file")
        host, port = settings.metrics_host, settings.metrics_port if port is None else port
        if len(given) == len(files):
            return cls(host, port, (given[0], given[1], given[2]))
        remedy = "Set metrics_certificate, metrics_key and metrics_client_ca, all three"
        if given:
            raise SettingsError("TLS needs three files", where="metrics_*", remedy=remedy)
        if not _is_here(host):
            raise SettingsError(
                f"{host!r} can be reached from other machines, without authentication",
                where="metrics_host",
                remedy=f"{remedy}; or listen on 127.0.0.1",
            )
        return cls(host, port, None)


class MetricsServer:
    """Serves until it is closed; a context manager. port: the actual one."""

    def __init__(self, endpoint: Endpoint, registry: CollectorRegistry, healthy: Check, ready: Check) -> None:
        """Begin to listen.

        Raises:
            SettingsError: the port is taken, or a file of TLS cannot be used.
        """
        application = _application(make_wsgi_app(registry), {"/healthz": healthy, "/readyz": ready})
        try:
            self._server = make_server(endpoint.host, endpoint.port, application, _Threading, _Handler)
        except OSError as failure:
            raise SettingsError(
                f"cannot listen on {endpoint.host}:{endpoint.port} ({failure.strerror})",
                where="metrics_port",
                remedy="Another program may use it: choose another port",
            ) from None
        if endpoint.tls is not None:
            self._server.socket = _context(*endpoint.tls).wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = int(self._server.server_address[1])
        scheme = "http" if endpoint.tls is None else "https"
        self.address = f"{scheme}://{endpoint.host}:{self.port}"

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that breaks off, or has no certificate."""
        _log.info("a client was not served", client=str(client_address[0]), exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE  # also of the TLS handshake, which is made by the request's own thread

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """A line for each scrape says nothing."""


def _application(metrics: Any, checks: dict[str, Check]) -> Callable[..., Iterable[bytes]]:
    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _text(start_response, "405 Method Not Allowed", "only GET")
        if path == "/metrics":
            return metrics(environ, start_response)  # type: ignore[no-any-return]
        if path not in checks:
            return _text(start_response, "404 Not Found", f"there are /metrics, {' and '.join(checks)}")
        problem = checks[path]()
        return _text(start_response, "200 OK" if problem is None else "503 Service Unavailable", problem or "ok")

    return serve


def _text(start_response: Any, status: str, text: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


def _context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as failure:
        remedy = "Give PEM files: a certificate, its key without a password, and the authority of clients"
        raise SettingsError(f"cannot be used: {failure}", where="metrics_certificate", remedy=remedy) from None
    return context


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
