"""Notifications: alerts as messages to webhooks, channels and mailboxes, by routes (`nightjar alerts notify`).

How it works: the alerts topic is read into an outbox, a file of SQLite, together with the offsets of what was read. A
thread per target sends what is due there and removes it once it was accepted. So nothing that was read is lost,
whatever crashes, and what is sent again has the same content under the same key.

`routes`, `quiet`, `notices` and `texts` are pure: what goes where, when, and how it reads.
"""
