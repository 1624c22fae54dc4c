"""Purpose: what fake-gcs-server, an emulator of Google Cloud Storage, lacks for our clients, in front of it.

How it works: the emulator keeps the objects and decides on preconditions, which it does for uploads in one request of
Google's JSON interface. The gateway turns the other ways to upload into that request: single and multipart uploads by
the XML interface (obstore, delta-rs and Polars), and resumable ones (Spark's connector), which also moves objects. It
leaves out of a listing what sorts before the name that the client starts after, which the emulator does not, and names
a missing bucket as Google does. Every request needs a token that the account's key has signed, or that was given for
such a one. All else is passed on as it is.

It is a process of its own, because some calls of delta-rs hold Python's lock while they wait for it.

What it does not do: check scopes, expire tokens, or resume what a client has given up.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import sys
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

_JSON = ("storage", "upload", "download", "batch")
_HOP = {
    "host",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "authorization",
    "accept-encoding",
    "expect",
}
_BOUNDARY = "nightjar-part"
_CONTENTS = re.compile(r"<Contents><Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_MOVE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/moveTo/o/([^/]+)")
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass
class _Upload:
    """What has come of a resumable upload, or of one in parts."""

    bucket: str
    name: str
    condition: str | None = None
    content: bytearray = field(default_factory=bytearray)
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass
class _Answer:
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


_NO_BUCKET = _Answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")


class Gateway(ThreadingHTTPServer):
    """Listens on a port. emulator: its port. key: of the account."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, emulator: int, key: RSAPublicKey) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.emulator, self.key = emulator, key
        self.tokens: set[str] = set()
        self.uploads: dict[str, _Upload] = {}

    def is_signed(self, token: str) -> bool:
        """Whether the account's key has signed this JSON Web Token."""
        text, _, signature = token.rpartition(".")
        try:
            self.key.verify(urlsafe_b64decode(signature + "=="), text.encode(), PKCS1v15(), SHA256())
        except (InvalidSignature, ValueError):
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: Gateway

    def _handle(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = self._chunked()
        answer = self._answer(content)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(answer.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815  the server's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the server's name
        """Nothing: the emulator logs."""

    def _chunked(self) -> bytes:
        found = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _answer(self, content: bytes) -> _Answer:
        url = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        first, _, rest = url.path.removeprefix("/").partition("/")
        if first == "token":
            return self._token(parse_qs(content.decode()).get("assertion", [""])[0])
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.server.tokens and not self.server.is_signed(token):
            return _Answer(401, b'{"error": {"code": 401, "message": "Invalid Credentials"}}')
        if first == "resumable":
            return self._more(rest, content)
        if asked.get("uploadType") == "resumable":
            return self._begun(rest, asked, content)
        if move := _MOVE.fullmatch(url.path):
            return self._moved(*(unquote(each) for each in move.groups()), asked.get("ifGenerationMatch"))
        if first in _JSON:
            return self._passed_on(content)
        return self._xml(first, unquote(rest), asked, content)

    def _token(self, assertion: str) -> _Answer:
        if not self.server.is_signed(assertion):
            return _Answer(400, b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}')
        token = secrets.token_urlsafe()
        self.server.tokens.add(token)
        found = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        return _Answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _xml(self, bucket: str, name: str, asked: Mapping[str, str], content: bytes) -> _Answer:
        condition = self.headers.get("x-goog-if-generation-match")
        uploads = self.server.uploads
        if self.command == "POST" and "uploads" in asked:
            number = secrets.token_hex(8)
            uploads[number] = _Upload(bucket, name)
            found = "InitiateMultipartUploadResult"
            return _Answer(200, f"<{found}><UploadId>{number}</UploadId></{found}>".encode())
        if number := asked.get("uploadId"):
            if self.command == "PUT":
                uploads[number].parts[int(asked["partNumber"])] = content
                return _Answer(200, headers={"ETag": f'"{asked["partNumber"]}"'})
            upload = uploads.pop(number)
            if self.command == "DELETE":
                return _Answer(204)
            whole = b"".join(upload.parts[part] for part in sorted(upload.parts))
            done = self._uploaded(bucket, name, whole, condition)
            found = "CompleteMultipartUploadResult"
            text = f"<{found}><ETag>{done.headers.get('ETag', '')}</ETag></{found}>" if done.status == 200 else ""
            return _Answer(done.status, text.encode() or done.content, done.headers)
        if self.command == "PUT":
            return self._uploaded(bucket, name, content, condition)
        answer = self._passed_on(content)
        if b"no bucket named" in answer.content:
            return _NO_BUCKET
        if answer.status == 200 and (start := asked.get("start-after")):
            text = answer.content.decode()
            kept = _CONTENTS.sub(lambda each: each[0] if unescape(each[1]) > start else "", text)
            return _Answer(200, kept.encode(), answer.headers)
        return answer

    def _begun(self, path: str, asked: Mapping[str, str], content: bytes) -> _Answer:
        name = asked.get("name") or json.loads(content)["name"]
        number = secrets.token_hex(8)
        bucket = path.partition("/b/")[2].partition("/")[0]
        self.server.uploads[number] = _Upload(bucket, name, asked.get("ifGenerationMatch"))
        return _Answer(200, headers={"Location": f"http://{self.headers['Host']}/resumable/{number}"})

    def _more(self, number: str, content: bytes) -> _Answer:
        """A piece of a resumable upload; it is whole once its length is known, and has come."""
        upload = self.server.uploads[number]
        given = _RANGE.fullmatch(self.headers.get("Content-Range", ""))
        if given and given[1]:
            del upload.content[int(given[1]) :]  # what is sent again
        upload.content += content
        if given and (given[3] == "*" or int(given[3]) > len(upload.content)):
            last = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
            return _Answer(308, headers=last)
        return self._inserted(upload.bucket, upload.name, bytes(upload.content), upload.condition)

    def _uploaded(self, bucket: str, name: str, content: bytes, condition: str | None) -> _Answer:
        """As the XML interface answers."""
        done = self._inserted(bucket, name, content, condition)
        if done.status == 404:
            return _NO_BUCKET
        if done.status != 200:
            return done
        found = json.loads(done.content)
        return _Answer(200, headers={"ETag": f'"{found["etag"]}"', "x-goog-generation": found["generation"]})

    def _inserted(self, bucket: str, name: str, content: bytes, condition: str | None) -> _Answer:
        asked = {"uploadType": "multipart"} | ({} if condition is None else {"ifGenerationMatch": condition})
        begin = f"--{_BOUNDARY}\r\nContent-Type: "
        head = f"{begin}application/json\r\n\r\n{json.dumps({'name': name})}\r\n{begin}application/octet-stream\r\n\r\n"
        body = head.encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(asked)}"
        return self._asked("POST", path, body, {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"})

    def _moved(self, bucket: str, name: str, to: str, condition: str | None) -> _Answer:
        """Not at once, as at Google; whether the new name is free is decided by the emulator."""
        place = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        held = self._asked("GET", f"{place}?alt=media", b"", {})
        if held.status != 200:
            return held
        done = self._inserted(bucket, to, held.content, condition)
        if done.status == 200:
            self._asked("DELETE", place, b"", {})
        return done

    def _passed_on(self, content: bytes) -> _Answer:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        return self._asked(self.command, self.path, content, headers)

    def _asked(self, method: str, path: str, content: bytes, headers: Mapping[str, str]) -> _Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.emulator)
        try:
            connection.request(method, path, content, dict(headers) | {"Host": self.headers["Host"]})
            found = connection.getresponse()
            return _Answer(found.status, found.read(), dict(found.getheaders()))
        finally:
            connection.close()


if __name__ == "__main__":
    _port, _emulator, _file = sys.argv[1:]
    _key = load_pem_public_key(Path(_file).read_bytes())
    assert isinstance(_key, RSAPublicKey)
    Gateway(int(_port), int(_emulator), _key).serve_forever()
