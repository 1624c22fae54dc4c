"""Sends messages by HTTP: as signed JSON to a webhook, and as text to a channel of Slack or of what takes the same.

Signatures are those of Standard Webhooks (https://www.standardwebhooks.com), for which there are libraries.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from nightjar.configuration.private_files import private_text
from nightjar.notifications.authorities import trusting
from nightjar.notifications.messages import DeliveryError, Message, RefusedError
from nightjar.notifications.routes import Slack, Webhook, checked_url
from nightjar.notifications.texts import channel_text, payload
from nightjar.rules.errors import SettingsError, printable, shortened

# httpx logs each request's address, which may be a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

# For each step of a request, seconds.
_SECONDS = 10.0
# Answers that do not speak about the message: the server is busy, or not ready.
_TRY_AGAIN = frozenset({408, 425, 429})
# What is shown of an answer, at most.
_SHOWN = 200
_PREFIX = "whsec_"
_LEAST_SECRET, _LONGEST_SECRET = 24, 64


def secret_in(file: Path) -> bytes:
    """The key of a webhook's signatures.

    Raises:
        SettingsError: the file cannot be read, others can read it, or it holds no such key.
    """
    text = private_text(file, "secret_file", "the key of signatures")
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True) if text.startswith(_PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not _LEAST_SECRET <= len(key) <= _LONGEST_SECRET:
        remedy = f'Write it with: echo "{_PREFIX}$(openssl rand -base64 32)"'
        what = f"holds no {_PREFIX} and {_LEAST_SECRET} to {_LONGEST_SECRET} bytes in base64"
        raise SettingsError(what, where=f"secret_file: {file}", remedy=remedy)
    return key


def url_in(file: Path) -> str:
    """The address in a file.

    Raises:
        SettingsError: the file cannot be read, others can read it, or it holds no address of a webhook.
    """
    try:
        return checked_url(private_text(file, "url_file", "the address of a webhook"))
    except ValueError as refusal:
        remedy = "Write the address in one line"
        raise SettingsError(f"holds no address: {refusal}", where=f"url_file: {file}", remedy=remedy) from None


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`. timestamp: seconds."""
    signed = b".".join([message_id.encode(), str(timestamp).encode(), body])
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def send_signed(target: Webhook, message: Message) -> None:
    """Send a message to a webhook.

    Raises:
        DeliveryError: it was not accepted.
        SettingsError: a secret's file cannot be used.
    """
    body, now = payload(message), int(time.time())
    headers = {
        "webhook-id": message.key,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secret_in(target.secret_file), message.key, now, body),
        "idempotency-key": message.key,
    }
    url = target.url if target.url_file is None else url_in(target.url_file)
    assert url is not None  # noqa: S101  a webhook has one address
    _post(url, body, headers, target.ca_file)


def send_to_channel(target: Slack, message: Message) -> None:
    """Send a message to a channel; raises as `send_signed`."""
    body = json.dumps({"text": channel_text(message)}).encode()
    _post(url_in(target.url_file), body, {"idempotency-key": message.key}, target.ca_file)


def _shown(text: str, url: str) -> str:
    """What somebody says, without the address, of which a part may be a secret."""
    parts = urlsplit(url)
    for secret in (url, f"{parts.path}?{parts.query}", parts.path, parts.query):
        if len(secret) > 1:
            text = text.replace(secret, "…")
    return printable(shortened(text, _SHOWN))


def _post(url: str, body: bytes, headers: Mapping[str, str], authorities: Path | None) -> None:
    """Redirects are not followed, and proxies that the environment names are not used: it goes where it is to go."""
    verify = True if authorities is None else trusting(authorities)  # httpx brings authorities along
    given = {"content-type": "application/json", "user-agent": "nightjar", **headers}
    try:
        with (
            httpx.Client(verify=verify, timeout=_SECONDS, trust_env=False, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=given) as answer,
        ):
            if answer.is_success:
                return
            said = next(answer.iter_bytes(_SHOWN), b"").decode(errors="replace")
            code, again = answer.status_code, answer.headers.get("retry-after", "")
    except (httpx.HTTPError, httpx.InvalidURL) as failure:
        raise DeliveryError(_shown(str(failure) or type(failure).__name__, url)) from None
    reason = f"it answers {code} {_shown(said, url)}".rstrip()
    if code >= httpx.codes.INTERNAL_SERVER_ERROR or code in _TRY_AGAIN:
        raise DeliveryError(reason, again_after=float(again) if again.isascii() and again.isdecimal() else 0.0)
    raise RefusedError(reason)
