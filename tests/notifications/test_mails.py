"""Messages to a real SMTP server, with TLS and a login."""

import ssl
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from nightjar.notifications.mails import check_files
from nightjar.notifications.messages import DeliveryError, Message, RefusedError
from nightjar.notifications.routes import Mail
from nightjar.notifications.senders import send
from nightjar.processes.process import free_port
from nightjar.rules.errors import SettingsError
from tests.support.alert_records import alert
from tests.support.certificates import certificates

PASSWORD = "a b%!"


class Mailboxes:
    """What the server has; refused: answers by mailbox, and of the content under ""."""

    def __init__(self) -> None:
        self.mails: list[tuple[Any, EmailMessage]] = []
        self.refused: dict[str, str] = {}

    async def handle_RCPT(  # noqa: N802  aiosmtpd's name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        """A mailbox is named."""
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  aiosmtpd's name
        """A mail comes."""
        if "" in self.refused:
            return self.refused[""]
        read = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append((envelope, read))  # type: ignore[arg-type]
        assert session.ssl is not None, "it came unencrypted"
        return "250 OK"


def login(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    """Whether it may."""
    assert isinstance(data, LoginPassword)
    is_right = data.login == b"nightjar" and data.password.decode() == PASSWORD
    return AuthResult(success=is_right, handled=False)


class Server:
    """A running server. target: to send to it."""

    def __init__(self, folder: Path) -> None:
        self.boxes, self.folder, authority = Mailboxes(), folder, certificates(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
        self.port = free_port()
        self.controller = Controller(
            self.boxes,
            hostname="127.0.0.1",
            port=self.port,
            tls_context=context,
            require_starttls=True,
            authenticator=login,
            auth_required=True,
        )
        self.password = folder / "password"
        self.password.touch(mode=0o600)
        self.password.write_text(PASSWORD + "\n")
        self.authority = authority

    def target(self, **more: Any) -> Mail:
        """The server's mailboxes."""
        given = {
            "kind": "mail", "host": "localhost", "port": self.port, "username": "nightjar",
            "password_file": self.password, "ca_file": self.authority,
            "from": "nightjar@a.example", "to": ["f@a.example", "g@a.example"], **more,
        }  # fmt: skip
        return Mail.model_validate(given, context={"folder": self.folder})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for TLS and a login."""
    server = Server(tmp_path_factory.mktemp("smtp"))
    server.controller.start()
    yield server
    server.controller.stop()


@pytest.fixture
def server(running: Server) -> Server:
    """The same, with nothing in it."""
    running.boxes.mails.clear()
    running.boxes.refused.clear()
    running.password.write_text(PASSWORD + "\n")
    return running


def one(**more: object) -> Message:
    """A message of one alert."""
    return Message("k" * 32, 1, [alert("t1", **more)], {})


def test_a_mail_arrives(server: Server) -> None:
    """Over TLS, after a login, in each mailbox; with the same id each time."""
    for _ in range(2):
        send(server.target(), one(text="grüße\r\n.\r\nQUIT\r\n"))
    (envelope, read), (_, again) = server.boxes.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == ("nightjar@a.example", ["f@a.example", "g@a.example"])
    assert read["Subject"] == "[nightjar] HIGH burst: 1 alert"
    assert "  grüße\\r\\n.\\r\\nQUIT\\r\\n" in read.get_content().splitlines()
    assert read["Message-ID"] == again["Message-ID"]


def test_a_server_that_nobody_vouches_for_gets_nothing(server: Server) -> None:
    """Neither the login nor the mail."""
    with pytest.raises(DeliveryError, match="certificate verify failed"):
        send(server.target(ca_file=None), one())
    with pytest.raises(DeliveryError, match="certificate"):
        send(server.target(host="127.0.0.1"), one())
    assert server.boxes.mails == []


def test_a_wrong_password(server: Server) -> None:
    """It is about the target and not about the mail; the error has no part of it."""
    server.password.write_text("wrong-word")
    with pytest.raises(DeliveryError, match=r"the login is refused \(535\)") as caught:
        send(server.target(), one())
    assert not isinstance(caught.value, RefusedError)
    server.password.chmod(0o644)
    with pytest.raises(SettingsError, match="others can read it"):
        check_files(server.target())
    server.password.chmod(0o600)
    with pytest.raises(SettingsError, match=r"ca_file: .*: cannot be used"):
        check_files(server.target(ca_file="nothing"))


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ({"": "554 spam"}, True),
        ({"": "451 later"}, False),
        ({"f@a.example": "550 nobody", "g@a.example": "550 nobody"}, True),
        ({"f@a.example": "550 nobody", "g@a.example": "450 full"}, False),
    ],
)
def test_what_is_not_accepted(server: Server, answers: dict[str, str], refused: bool) -> None:
    """For good, or for now."""
    server.boxes.refused |= answers
    with pytest.raises(DeliveryError, match="it answers") as caught:
        send(server.target(), one())
    assert isinstance(caught.value, RefusedError) is refused


def test_one_mailbox_is_enough(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """The other is logged."""
    server.boxes.refused["f@a.example"] = "550 nobody"
    send(server.target(), one())
    ((envelope, _),) = server.boxes.mails
    assert envelope.rcpt_tos == ["g@a.example"]
    captured = capsys.readouterr()
    assert "mail_refused_for_some" in captured.out + captured.err
