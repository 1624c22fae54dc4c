"""Reports failed tasks to people, over an Airflow connection that the setting `notify_connection` names.

A connection of type `http` is a webhook: it gets `{"text": ...}` as JSON, which Slack, Mattermost and others show. One
of type `smtp` sends mail from its login to its extra's `to`: with TLS from the start if it is of type `smtps` or on
port 465, elsewhere with STARTTLS unless its extra has `disable_tls`. Imports nothing heavy: DAG files import it.
"""

from typing import Any

from airflow.sdk import BaseNotifier

_SECONDS = 20.0
# Where TLS begins with the connection (RFC 8314).
_SMTPS = 465
_LONGEST = 3000


class Notify(BaseNotifier):
    """Airflow's callback for a failed task. Does nothing if no connection is set; its own failure is logged."""

    def notify(self, context: Any) -> None:
        """Send one message about the task."""
        from nightjar.configuration.settings import load_settings

        name = load_settings().notify_connection
        if not name:
            return
        from airflow.sdk import Connection

        send(Connection.get(name), *message(context))


def message(context: Any) -> tuple[str, str]:
    """The subject and the text about a failed task."""
    task = context["task_instance"]
    about = f"{task.dag_id}.{task.task_id}"
    reason = str(context.get("exception") or "see its log").strip()[:_LONGEST]
    lines = [f"{about} failed in run {task.run_id}", reason]
    if address := getattr(task, "log_url", None):
        lines.append(str(address))
    return f"nightjar: {about} failed", "\n".join(lines)


def send(connection: Any, subject: str, text: str) -> None:
    """Send over the connection.

    Raises:
        ValueError: a connection of another type.
    """
    match connection.conn_type:
        case "http" | "https":
            _post(connection, text)
        case "smtp" | "smtps":
            _mail(connection, subject, text)
        case other:
            raise ValueError(f"notify_connection is of type {other!r}; it must be http (a webhook) or smtp")


def _post(connection: Any, text: str) -> None:
    import httpx

    host = connection.host or ""
    if "://" not in host:
        port = f":{connection.port}" if connection.port else ""
        host = f"{connection.schema or 'https'}://{host}{port}"
    path = connection.extra_dejson.get("path", "")  # of a webhook, often a secret
    headers = {"Authorization": f"Bearer {connection.password}"} if connection.password else {}
    httpx.post(f"{host}{path}", json={"text": text}, headers=headers, timeout=_SECONDS).raise_for_status()


def _mail(connection: Any, subject: str, text: str) -> None:
    import smtplib
    import ssl
    from email.message import EmailMessage

    extra = connection.extra_dejson
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, extra.get("from", connection.login or ""), extra["to"]
    mail.set_content(text)
    context, implicit = ssl.create_default_context(), connection.conn_type == "smtps" or connection.port == _SMTPS
    opened = (
        smtplib.SMTP_SSL(connection.host, connection.port or _SMTPS, timeout=_SECONDS, context=context)
        if implicit
        else smtplib.SMTP(connection.host, connection.port or 587, timeout=_SECONDS)
    )
    with opened as server:
        if not implicit and not extra.get("disable_tls", False):
            server.starttls(context=context)
        if connection.login and connection.password:
            server.login(connection.login, connection.password)
        server.send_message(mail)
