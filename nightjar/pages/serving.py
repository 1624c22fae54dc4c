"""Serves the pages on this machine, to who has the token that the command prints.

The token is drawn at each start, and exchanged for a cookie at the first visit, so that it does not stay in the
address. Requests for other hosts are refused: otherwise a page from elsewhere could have its own name resolved to
this machine, and read what is here.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import RedirectResponse, Response
from starlette.middleware.trustedhost import TrustedHostMiddleware

from nightjar.operations.rule_publishing import login_name
from nightjar.pages.acting import Acting
from nightjar.rules.errors import SettingsError

_HOST = "127.0.0.1"
_COOKIE = "nightjar_pages"
_TOKEN = "token"  # noqa: S105  the name of a parameter


class LocalAccess:
    """Lets who has the token pass. guard: the dependency of pages; actor: that of what changes something, in the name
    of whoever runs the command."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.guard = Depends(self._refuse_strangers)
        acting = Acting(login_name() or "unknown", self.token)
        self.actor = Depends(lambda: acting)

    def _is_right(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def _refuse_strangers(self, request: Request) -> None:
        if not self._is_right(request.cookies.get(self._cookie(request))):
            why = "Open the address that `nightjar pages` printed: it holds a token."
            raise HTTPException(status.HTTP_401_UNAUTHORIZED, why)

    @staticmethod
    def _cookie(request: Request) -> str:
        """Browsers keep one cookie of a name for all ports of a host."""
        return f"{_COOKIE}_{request.url.port}"

    def protect(self, app: FastAPI) -> None:
        """Have the application exchange a token in an address for a cookie, and answer to this machine's names only."""

        @app.middleware("http")
        async def exchange(request: Request, following: Any) -> Response:
            given = request.query_params.get(_TOKEN)
            if given is None or not self._is_right(given):
                found: Response = await following(request)
                return found
            there = RedirectResponse(str(request.url.remove_query_params(_TOKEN)), status.HTTP_303_SEE_OTHER)
            there.set_cookie(self._cookie(request), given, httponly=True, samesite="strict")
            return there

        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"])


def bound(port: int) -> socket.socket:
    """A socket that listens on this machine. port: 0 for any that is free.

    Raises:
        SettingsError: the port is taken.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
    except OSError as failure:
        listening.close()
        remedy = "Another program may use it: choose another port"
        raise SettingsError(f"cannot listen ({failure.strerror})", where=f"--port {port}", remedy=remedy) from None
    return listening


def address_of(listening: socket.socket, access: LocalAccess) -> str:
    """The address on this machine that lets who opens it in."""
    return f"http://{_HOST}:{listening.getsockname()[1]}/?{_TOKEN}={access.token}"


def server_of(app: FastAPI) -> uvicorn.Server:
    """What serves the application on a socket until Ctrl-C or SIGTERM, with `run([socket])`."""
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2)
    )
