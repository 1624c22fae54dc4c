"""What the user of a request may do besides looking, and that a form which does it came from a page of ours.

How it works: each form carries a seal, which is made of the user's name and a secret of the server. A page of another
site can send a form with the user's cookie, but cannot know the seal, because no browser lets it read our pages.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from fastapi import HTTPException, Request, status

from nightjar.rules.errors import SettingsError

# Bytes of a form: a reason has at most 500 characters.
_LONGEST = 16_384
# Characters of a version's number.
_LONGEST_NUMBER = 9
_FORM = "application/x-www-form-urlencoded"
SEAL = "seal"


@dataclass(frozen=True)
class Acting:
    """The user of a request. name: whose labels they are; None: a user who may only look. secret: of the server."""

    name: str | None
    secret: str = field(repr=False)

    @property
    def seal(self) -> str:
        """What forms for this user carry."""
        about = f"nightjar form of {self.name}".encode()
        return hmac.new(self.secret.encode(), about, hashlib.sha256).hexdigest()

    def refuse_onlookers(self) -> str:
        """The user's name.

        Raises:
            HTTPException: 403, for a user who may only look.
        """
        if self.name is None:
            raise HTTPException(status.HTTP_403_FORBIDDEN, "Your role may look, and change nothing.")
        return self.name

    def refuse(self, form: dict[str, str]) -> str:
        """The user's name, if the form may do something.

        Raises:
            HTTPException: 403, for a user who may only look, and for a form that is not from a page for this user.
        """
        name = self.refuse_onlookers()
        if not hmac.compare_digest(form.get(SEAL, "").encode(), self.seal.encode()):
            why = "The form is not from a page that was made for you: open the page again."
            raise HTTPException(status.HTTP_403_FORBIDDEN, why)
        return name


def reason_of(form: dict[str, str], longest: int) -> str:
    """The reason that a form gives. longest: characters.

    Raises:
        SettingsError: it gives none, or a longer one.
    """
    if not (reason := form.get("reason", "").strip()) or len(reason) > longest:
        remedy = f"Say why in one line of at most {longest} characters"
        raise SettingsError("is too long" if reason else "is missing", where="reason", remedy=remedy)
    return reason


def version_of(form: dict[str, str], name: str) -> int | None:
    """The number of a version in a field of a form; None if it is none."""
    number = form.get(name, "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER else None


async def acted(
    request: Request, acting: Acting, longest: int = _LONGEST, too_long: str = "The form is too long."
) -> tuple[str, dict[str, str]]:
    """The name of the user, who may do something, and the form that does it. longest: bytes.

    Raises:
        HTTPException: see `Acting.refuse` and `form_of`; before the form is read for a user who may only look.
    """
    acting.refuse_onlookers()
    form = await form_of(request, longest, too_long)
    return acting.refuse(form), form


async def form_of(request: Request, longest: int, too_long: str) -> dict[str, str]:
    """The fields of a form, each once. longest: bytes; too_long: what is said of more.

    Raises:
        HTTPException: it is no form, or too long.
    """
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _FORM:
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "Only a form of the pages is taken.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, too_long)
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:  # a UnicodeDecodeError, too
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "The form cannot be read.") from None
    return {name: values[-1] for name, values in fields.items()}
