"""Asks a schema registry with Confluent's interface for schemas by their ids, and registers schemas of our own.

It is asked once for each id, and what it answered is kept (formats/schemas.py).
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from nightjar.formats.errors import RegistryError, SchemaError
from nightjar.rules.encodings import Format
from nightjar.rules.errors import shortened

_SECONDS = 5.0
# Waits between attempts.
_AGAIN = (0.2, 1.0, 3.0)
_MAX_BYTES = 4 << 20
_MAX_REFERENCES = 100
# Answers that say something about what was asked for.
_FORBIDDEN, _NOT_FOUND, _INCOMPATIBLE, _INVALID, _TOO_MANY = 403, 404, 409, 422, 429
_REFUSED = (401, 403)
# Of Confluent's interface: no such subject, version, schema.
_NOT_THERE = (40401, 40402, 40403)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry has it. references: name to text, those first that others refer to."""

    format: Format
    text: str
    references: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Registry:
    """How the registry is reached. login_file: a file with user:password; ca_file: of the certificate's authority."""

    url: str
    login_file: Path | None = None
    ca_file: Path | None = None

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema with this id; None if the registry has none, or does not show it to this login.

        Raises:
            RegistryError: it cannot be reached, or does not answer as a registry does.
            SchemaError: it refers to what is not there, or to too many.
        """
        with self._client() as client:
            found = self._get(client, f"/schemas/ids/{number}", hidden=True)
            if found is None:
                return None
            kind = found.get("schemaType", "AVRO")
            if kind not in ("AVRO", "PROTOBUF"):
                return RegisteredSchema(Format.JSON, "")
            references: dict[str, str] = {}
            self._add_references(client, found, references)
            return RegisteredSchema(Format(kind.lower()), _text(found), references)

    def latest(self, subject: str) -> tuple[int, RegisteredSchema] | None:
        """The id and the schema of a subject's latest version; None if there is no such subject."""
        with self._client() as client:
            found = self._get(client, f"/subjects/{quote(subject, safe='')}/versions/latest")
        number = None if found is None else found.get("id")
        if not isinstance(number, int):
            return None
        schema = self.schema(number)
        return None if schema is None else (number, schema)

    def register(self, subject: str, schema: str) -> int:
        """Add a schema of Avro to a subject, if it is not there yet; its id.

        Raises:
            RegistryError: the registry cannot be reached, or this login may not do that.
            SchemaError: the subject has another schema, with which this one is not compatible.
        """
        content = {"schema": schema, "schemaType": "AVRO"}
        with self._client() as client:
            answer = self._ask(client, "POST", f"/subjects/{quote(subject, safe='')}/versions", content)
        if answer.status_code in (_INCOMPATIBLE, _INVALID):
            said = shortened(str(self._object(answer).get("message", "")))
            raise SchemaError(
                f"the registry refuses the schema ({answer.status_code} {said})",
                where=subject,
                remedy="The subject has a schema that this one is not compatible with: name another topic, or allow it",
            )
        if answer.status_code in _REFUSED:
            remedy = "Give schema_registry_login_file a login that may write"
            raise self._error(f"this login may not register a schema for {subject}", remedy)
        number = self._object(answer).get("id") if answer.is_success else None
        if not isinstance(number, int):
            raise self._error(f"it answers {answer.status_code}")
        return number

    def _add_references(self, client: httpx.Client, schema: dict[str, Any], found: dict[str, str]) -> None:
        for reference in schema.get("references") or ():
            name, subject, version = (reference.get(key) for key in ("name", "subject", "version"))
            if name in found:
                continue
            if len(found) >= _MAX_REFERENCES:
                raise SchemaError(f"refers to more than {_MAX_REFERENCES} others")
            place = f"/subjects/{quote(str(subject), safe='')}/versions/{quote(str(version), safe='')}"
            referred = self._get(client, place, hidden=True)
            if referred is None:
                raise SchemaError(f"refers to version {version} of {subject}, which the registry does not have")
            self._add_references(client, referred, found)
            found[str(name)] = _text(referred)

    def _client(self) -> httpx.Client:
        login = None
        if self.login_file is not None:
            try:
                user, colon, password = self.login_file.read_text(encoding="utf-8").strip().partition(":")
            except (OSError, UnicodeDecodeError) as failure:
                why = getattr(failure, "strerror", None) or type(failure).__name__
                raise self._error(f"the login cannot be read from {self.login_file} ({why})") from None
            if not colon:
                raise self._error(f"{self.login_file} has no colon", "It holds user:password")
            login = httpx.BasicAuth(user, password)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        try:
            verify = True if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)
            return httpx.Client(auth=login, verify=verify, timeout=_SECONDS, headers=headers, trust_env=False)
        except OSError as failure:
            why = failure.strerror or type(failure).__name__
            raise self._error(f"the certificate cannot be read from {self.ca_file} ({why})") from None

    def _get(self, client: httpx.Client, place: str, *, hidden: bool = False) -> dict[str, Any] | None:
        """What is there; None if nothing is, and with `hidden` also if this login may not see it."""
        answer = self._ask(client, "GET", place)
        if hidden and answer.status_code == _FORBIDDEN:
            return None
        # another server, or a wrong path, answers so too
        if answer.status_code == _NOT_FOUND and self._object(answer).get("error_code") in _NOT_THERE:
            return None
        if not answer.is_success:
            raise self._error(f"it answers {answer.status_code}")
        return self._object(answer)

    def _ask(self, client: httpx.Client, method: str, place: str, content: Any = None) -> httpx.Response:
        """Its answer, whatever it says about the request. Repeating a request has no effect."""
        why = ""
        for wait in (*_AGAIN, None):
            try:
                answer = client.request(method, self.url.rstrip("/") + place, json=content)
            except httpx.HTTPError as failure:
                why = str(failure) or type(failure).__name__
            else:
                is_final = answer.is_success or (answer.is_client_error and answer.status_code != _TOO_MANY)
                if is_final and len(answer.content) <= _MAX_BYTES:
                    return answer
                why = f"it answers {answer.status_code}"
                if is_final:
                    break
            if wait is not None:
                time.sleep(wait)
        raise self._error(why)

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._error("it does not answer with an object of JSON")
        return found

    def _error(self, why: str, remedy: str = "") -> RegistryError:
        remedy = remedy or "Check schema_registry, schema_registry_login_file and whether it runs"
        return RegistryError(f"the schema registry cannot be used: {why}", where=self.url, remedy=remedy)


def _text(found: dict[str, Any]) -> str:
    text = found.get("schema")
    return text if isinstance(text, str) else ""
