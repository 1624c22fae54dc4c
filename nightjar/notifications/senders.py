"""Sends a message to a target of any kind."""

from nightjar.notifications.authorities import trusting
from nightjar.notifications.mails import check_files, send_mail
from nightjar.notifications.messages import Message
from nightjar.notifications.routes import Mail, Slack, Target, Webhook
from nightjar.notifications.webhooks import secret_in, send_signed, send_to_channel, url_in


def check_secrets(target: Target) -> None:
    """Read the files that a target names, so that a wrong one is noticed before it is needed.

    Raises:
        SettingsError: one cannot be used.
    """
    trusting(target.ca_file)
    match target:
        case Webhook():
            secret_in(target.secret_file)
            if target.url_file is not None:
                url_in(target.url_file)
        case Slack():
            url_in(target.url_file)
        case Mail():
            check_files(target)


def send(target: Target, message: Message) -> None:
    """Send a message to a target.

    Raises:
        DeliveryError: it was not accepted.
        SettingsError: a secret's file cannot be used.
    """
    match target:
        case Webhook():
            send_signed(target, message)
        case Slack():
            send_to_channel(target, message)
        case Mail():
            send_mail(target, message)
