"""A real HTTP server that takes webhooks, and answers as a test says."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request that came. headers: their names in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        """Its JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.headers["webhook-id"]

    @property
    def events(self) -> list[tuple[str, str]]:
        """Kind and event of each alert."""
        return [(alert["kind"], alert["event_id"]) for alert in self.content["alerts"]]


@dataclass
class Hooks:
    """A running server. answers: status, headers and body by path; where there is none it accepts."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)


@contextmanager
def hooks(certificate: Path | None = None, key: Path | None = None) -> Iterator[Hooks]:
    """The server, until the block ends. certificate, key: for TLS, as `localhost`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            running.requests.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, answer = running.answers.get(self.path, (204, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Hooks(f"http://127.0.0.1:{server.server_address[1]}")
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            running.url = f"https://localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()
