"""Messages to a real HTTP server: signatures, what is tried again, and what is given up."""

import base64
import hashlib
import hmac
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nightjar.notifications.delivery import Courier
from nightjar.notifications.messages import DeliveryError, Message, RefusedError
from nightjar.notifications.metrics import NotifierMetrics
from nightjar.notifications.outbox import Outbox, Routed
from nightjar.notifications.routes import Quiet, Slack, Webhook
from nightjar.notifications.senders import send
from nightjar.notifications.webhooks import secret_in, signature, url_in
from nightjar.rules.errors import SettingsError
from tests.support.alert_records import alert
from tests.support.certificates import certificates
from tests.support.hooks import Hooks, hooks

KEY = bytes(range(32))
HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Hooks]:
    """A server that accepts."""
    with hooks() as running:
        yield running


@pytest.fixture
def hook(server: Hooks) -> Hooks:
    """The same, with nothing in it."""
    server.requests.clear()
    server.answers.clear()
    return server


def private(file: Path, text: str) -> Path:
    """A file of a secret."""
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def webhook(folder: Path, url: str) -> Webhook:
    """A target at this address."""
    secret = private(folder / "secret", f"whsec_{base64.b64encode(KEY).decode()}\n")
    return Webhook.model_construct(kind="webhook", url=url, url_file=None, secret_file=secret, give_up_after=HOUR)


def slack(folder: Path, url: str) -> Slack:
    """A channel whose address is a secret."""
    return Slack.model_construct(kind="slack", url_file=private(folder / "url", f"{url}\n"))


def one(**more: object) -> Message:
    """A message of one alert."""
    return Message("k" * 32, 1, [alert("t1", **more)], {})


def test_a_receiver_can_check_it(hook: Hooks, tmp_path: Path) -> None:
    """With the algorithm of Standard Webhooks: who sent it, when, and that nothing was changed."""
    send(webhook(tmp_path, f"{hook.url}/desk"), one())
    (request,) = hook.requests
    sent_at = request.headers["webhook-timestamp"]
    assert abs(time.time() - int(sent_at)) < 60
    signed = f"{request.headers['webhook-id']}.{sent_at}.".encode() + request.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert request.headers["idempotency-key"] == request.headers["webhook-id"] == request.content["id"] == "k" * 32
    assert request.headers["content-type"] == "application/json"
    assert (request.path, request.events) == ("/desk", [("alert", "t1")])


def test_a_signature_is_that_of_the_specification() -> None:
    """Its example."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_channel_gets_text(hook: Hooks, tmp_path: Path) -> None:
    """And nothing else, as what is like Slack knows no more."""
    send(slack(tmp_path, f"{hook.url}/services/T/B/token"), one())
    (request,) = hook.requests
    assert request.path == "/services/T/B/token"
    assert set(request.content) == {"text"}
    assert request.content["text"].startswith("*HIGH burst: 1 alert*")


@pytest.mark.parametrize(
    ("status", "headers", "refused", "again_after"),
    [
        (400, {}, True, 0),
        (404, {}, True, 0),
        (429, {"retry-after": "7"}, False, 7),
        (500, {}, False, 0),
        (503, {"retry-after": "soon"}, False, 0),
        (302, {"location": "/elsewhere"}, True, 0),
    ],
)
def test_what_is_not_accepted(
    hook: Hooks, tmp_path: Path, status: int, headers: dict[str, str], refused: bool, again_after: float
) -> None:
    """The error has the answer, without control characters and without the address; a redirect is not followed."""
    answer = b"Cannot POST /x-token?y=z\x1b[2J\n" + b"a" * 100_000
    hook.answers["/x-token?y=z"] = (status, headers, answer)
    with pytest.raises(DeliveryError) as caught:
        send(slack(tmp_path, f"{hook.url}/x-token?y=z"), one())
    assert isinstance(caught.value, RefusedError) is refused
    assert caught.value.again_after == again_after
    text = str(caught.value)
    assert text.startswith(f"it answers {status} Cannot POST …\\x1b[2J\\na")
    assert len(text) < 300
    assert len(hook.requests) == 1


def test_a_server_that_is_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be there later; neither the error nor a log shows the address, which may be a secret."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(DeliveryError) as caught:
        send(slack(tmp_path, "http://127.0.0.1:1/token"), one())
    assert not isinstance(caught.value, RefusedError)
    assert "Connection refused" in str(caught.value)
    assert "token" not in str(caught.value) + caplog.text


def test_a_server_is_who_it_says(tmp_path: Path) -> None:
    """With the certificate of an authority that is named; another server gets nothing."""
    authority = certificates(tmp_path)
    with hooks(tmp_path / "server.pem", tmp_path / "server-key.pem") as server:
        target = slack(tmp_path, f"{server.url}/token")
        with pytest.raises(DeliveryError, match="certificate verify failed"):
            send(target, one())
        send(target.model_copy(update={"ca_file": authority}), one())
        other = slack(tmp_path, f"{server.url.replace('localhost', '127.0.0.1')}/token")
        with pytest.raises(DeliveryError, match="certificate verify failed"):
            send(other.model_copy(update={"ca_file": authority}), one())
    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ["", "password", "whsec_c2hvcnQ=", "whsec_" + "!" * 44, "whsec_" + "A" * 200])
def test_keys_that_are_none(tmp_path: Path, text: str) -> None:
    """The error says how to make one, and not what is there."""
    with pytest.raises(SettingsError, match="openssl rand") as caught:
        secret_in(private(tmp_path / "file", text))
    assert not text or text not in str(caught.value)


def test_files_that_others_can_read(tmp_path: Path) -> None:
    """They are refused, as are addresses that are none."""
    file = private(tmp_path / "url", "https://example/SECRET")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="others can read it"):
        url_in(file)
    with pytest.raises(SettingsError, match="holds no address") as caught:
        url_in(private(tmp_path / "other", "ftp://example/SECRET"))
    assert "SECRET" not in str(caught.value)


def rename(file: Path, before: str, after: str) -> None:
    """A table, in a transaction of another connection."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"ALTER TABLE {before} RENAME TO {after}")


def await_condition(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Post:
    """A target with an outbox; at: the time, µs."""

    def __init__(self, folder: Path, url: str) -> None:
        self.at, self.file = 0, folder / "outbox.sqlite"
        self.outbox = Outbox(self.file)
        self.metrics = NotifierMetrics(self.file, {"desk": lambda _: False}, lambda: self.at)
        self.courier = Courier("desk", webhook(folder, url), self.metrics)

    def take(self, *records: dict[str, object], grouping: str = "g") -> None:
        """Records come, and are due at once."""
        self.outbox.take("alerts", [Routed("desk", each, grouping, 0, urgent=False) for each in records], {}, self.at)

    def step(self) -> float | None:
        """The next attempt."""
        return self.courier.step(self.outbox, lambda: self.at)

    def value(self, name: str, **labels: str) -> float | None:
        """Of a metric."""
        return self.metrics.registry.get_sample_value(f"nightjar_{name}", {"target": "desk", **labels})


@pytest.fixture
def post(hook: Hooks, tmp_path: Path) -> Iterator[Post]:
    """Nothing in it."""
    made = Post(tmp_path, f"{hook.url}/desk")
    yield made
    made.outbox.__exit__()


def test_a_busy_server_gets_it_once_it_is_back(post: Post, hook: Hooks) -> None:
    """The same content under the same key, with a signature of its own; what comes behind it waits."""
    emitted = "1970-01-01T00:00:00Z"
    post.take(alert("t1", emitted_at=emitted), grouping="1")
    post.take(alert("t2", emitted_at=emitted), grouping="2")
    hook.answers["/desk"] = (503, {"retry-after": "9999"}, b"")
    assert [post.step(), post.step()] == [300.0, 300.0]
    post.at = 5_000_000
    assert post.value("notification_overdue_seconds") == 5
    assert post.value("notifications_waiting") == 2
    hook.answers.clear()
    assert [post.step(), post.step(), post.step()] == [None, None, -1.0]
    assert [request.events for request in hook.requests] == [[("alert", "t1")]] * 3 + [[("alert", "t2")]]
    assert len({request.key for request in hook.requests[:3]}) == 1
    assert len({request.body for request in hook.requests[:3]}) == 1
    assert post.value("notifications_total") == 2
    assert post.value("notification_failures_total", given_up="false") == 2
    assert post.value("notification_delay_seconds_sum") == 10
    assert post.value("notification_overdue_seconds") == 0


def test_a_message_that_is_refused_is_not_in_the_way_for_ever(post: Post, hook: Hooks) -> None:
    """After six attempts it is given up, kept, and counted."""
    post.take(alert("t1"), grouping="1")
    post.take(alert("t2"), grouping="2")
    hook.answers["/desk"] = (422, {}, b"no")
    assert [post.step() for _ in range(6)] == [0.0] * 6
    hook.answers.clear()
    assert [post.step(), post.step()] == [None, -1.0]
    assert hook.requests[-1].events == [("alert", "t2")]
    (kept,) = post.outbox.given_up()
    assert (kept.attempts, kept.reason) == (6, "it answers 422 no")
    assert post.value("notification_failures_total", given_up="true") == 1
    assert post.value("notifications_given_up") == 1


def test_a_server_that_stays_away_is_given_up_in_the_end(post: Post, hook: Hooks) -> None:
    """Not by the number of attempts, but after the time that its target says."""
    post.take(alert("t1"))
    hook.answers["/desk"] = (500, {}, b"")
    assert [post.step() for _ in range(20)] == [0.0] * 20
    assert post.outbox.given_up() == []
    post.at = HOUR
    post.step()
    assert len(post.outbox.given_up()) == 1
    assert post.step() == -1.0


def test_a_secret_that_vanishes_is_waited_for(post: Post, tmp_path: Path) -> None:
    """Nothing is given up for it; once it is there again, the new one counts."""
    post.take(alert("t1"))
    secret = (tmp_path / "secret").rename(tmp_path / "away")
    assert [post.step() for _ in range(9)] == [0.0] * 9
    secret.rename(tmp_path / "secret")
    assert post.step() is None


def test_what_was_held_is_sent_in_the_morning(post: Post, hook: Hooks, tmp_path: Path) -> None:
    """In one message, without what was retracted meanwhile; something critical does not wait."""
    night = Quiet.model_validate({"from": "22:00", "until": "07:00", "except": ["critical"]})
    target = webhook(tmp_path, f"{hook.url}/desk").model_copy(update={"quiet": night})
    courier = Courier("desk", target, post.metrics)
    hour = 3_600_000_000
    for at, record in {
        22: alert("t1"),
        23: alert("t2"),
        26: alert("t3"),
        27: alert("t2", revision=2, muted=True),
    }.items():
        post.at = at * hour
        post.take(record)
        assert courier.step(post.outbox, lambda: post.at) == -1.0
    post.outbox.take("alerts", [Routed("desk", alert("t4"), "g", 0, urgent=True)], {}, post.at)
    assert [courier.step(post.outbox, lambda: post.at) for _ in range(2)] == [None, -1.0]
    held = NotifierMetrics(post.file, {"desk": lambda _: True}, lambda: post.at).registry
    assert held.get_sample_value("nightjar_notifications_waiting", {"target": "desk"}) == 1
    assert held.get_sample_value("nightjar_notification_overdue_seconds", {"target": "desk"}) == 0
    post.at = 31 * hour
    assert [courier.step(post.outbox, lambda: post.at) for _ in range(2)] == [None, -1.0]
    assert [request.events for request in hook.requests] == [
        [("alert", "t4")],
        [("alert", "t1"), ("alert", "t3")],
    ]


def test_an_outbox_that_cannot_be_written_is_tried_again(post: Post, hook: Hooks) -> None:
    """As when the disk is full: the courier does not end."""
    post.take(alert("t1"))
    rename(post.file, "messages", "away")
    stop = threading.Event()
    running = threading.Thread(target=post.courier.run, args=(post.file, stop))
    running.start()
    try:
        with capture_logs() as logs:
            await_condition(lambda: bool(logs))
        assert logs[0]["event"] == "outbox_lost"
        rename(post.file, "away", "messages")
        await_condition(lambda: bool(hook.requests))
    finally:
        stop.set()
        running.join()
