"""Sends messages by mail, over SMTP."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from nightjar.configuration.private_files import private_text
from nightjar.notifications.authorities import trusting
from nightjar.notifications.messages import DeliveryError, Message, RefusedError
from nightjar.notifications.routes import Mail
from nightjar.notifications.texts import mail
from nightjar.rules.errors import SettingsError, printable, shortened

_log = structlog.get_logger(__name__)

_SECONDS = 20.0
_SHOWN = 200
_PERMANENT = 500


def check_files(target: Mail) -> tuple[str | None, ssl.SSLContext]:
    """The password, None without a login, and the authorities that may have signed the server's certificate.

    Raises:
        SettingsError: a file cannot be used.
    """
    password = None
    if target.password_file is not None:
        password = private_text(target.password_file, "password_file", "the password")
        if not password or not password.isprintable() or not password.isascii():
            remedy = "Write the password in one line"
            raise SettingsError(
                "holds no password in ASCII, which logins to mail servers take",
                where=f"password_file: {target.password_file}",
                remedy=remedy,
            )
    return password, trusting(target.ca_file)


def send_mail(target: Mail, message: Message) -> None:
    """Send a message to the mailboxes of a target.

    Raises:
        DeliveryError: no mailbox has accepted it.
        SettingsError: the password's file cannot be used.
    """
    written = mail(message, target.sender, target.to)
    with _explained(), _connected(target) as server:
        refused = server.send_message(written, target.sender, list(target.to))
    if refused:
        _log.warning("mail_refused_for_some", key=message.key, mailboxes=sorted(refused))


@contextmanager
def _connected(target: Mail) -> Iterator[smtplib.SMTP]:
    password, context = check_files(target)
    made = (
        smtplib.SMTP_SSL(target.host, target.port, timeout=_SECONDS, context=context)
        if target.security == "tls"
        else smtplib.SMTP(target.host, target.port, timeout=_SECONDS)
    )
    with made as server:
        if target.security == "starttls":
            server.starttls(context=context)
        if target.username is not None and password is not None:
            server.login(target.username, password)
        yield server


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except smtplib.SMTPRecipientsRefused as failure:
        answers = list(failure.recipients.values())
        code, said = min(answers)  # one that may accept it later counts
        raise _refusal(code, said) from None
    except smtplib.SMTPAuthenticationError as failure:
        # About the login and not about the message; what the server says may repeat it.
        raise DeliveryError(f"the login is refused ({failure.smtp_code})") from None
    except smtplib.SMTPResponseException as failure:
        raise _refusal(failure.smtp_code, failure.smtp_error) from None
    except (smtplib.SMTPException, OSError) as failure:
        raise DeliveryError(shortened(printable(str(failure) or type(failure).__name__), _SHOWN)) from None


def _refusal(code: int, said: bytes | str) -> DeliveryError:
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    reason = f"it answers {code} {printable(shortened(text, _SHOWN))}"
    return RefusedError(reason) if code >= _PERMANENT else DeliveryError(reason)
