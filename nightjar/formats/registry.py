"""Asks a schema registry with Confluent's interface for schemas by their ids, and registers schemas of our own.

It is asked once for each id, and what it answered is kept (formats/schemas.py).
"""

from __future__ import annotations

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
_NOT_FOUND, _INCOMPATIBLE, _INVALID = 404, 409, 422
_REFUSED = (401, 403)


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
        """The schema with this id; None if the registry has none.

        Raises:
            RegistryError: it cannot be reached, or does not answer as a registry does.
        """
        with self._client() as client:
            found = self._get(client, f"/schemas/ids/{number}")
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
                raise self._error(f"a schema refers to more than {_MAX_REFERENCES} others")
            place = f"/subjects/{quote(str(subject), safe='')}/versions/{int(version)}"
            referred = self._get(client, place)
            if referred is None:
                raise self._error(f"it lacks version {version} of {subject}, which another schema refers to")
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
        verify: Any = True if self.ca_file is None else str(self.ca_file)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        return httpx.Client(auth=login, verify=verify, timeout=_SECONDS, headers=headers, trust_env=False)

    def _get(self, client: httpx.Client, place: str) -> dict[str, Any] | None:
        answer = self._ask(client, "GET", place)
        if answer.status_code == _NOT_FOUND:
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
                if len(answer.content) <= _MAX_BYTES and (answer.is_success or answer.is_client_error):
                    return answer
                why = f"it answers {answer.status_code}"
                if answer.is_success or answer.is_client_error:
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
