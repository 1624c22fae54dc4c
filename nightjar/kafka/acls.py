"""Defines which principals may write and read each topic, as one table.

docs/reference/security.md shows the table, `nightjar topics` prints it, `nightjar topics --acls` turns it into commands
of Kafka's own tool, and `nightjar topics grant` into the brokers' access control lists (administration.py).

nightjar checks records against their schema but cannot detect a forged record that conforms to it. So each topic has as
few writers as possible.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nightjar.configuration.settings import Settings
from nightjar.rules.streams import Stream, recorded_streams


class Role(StrEnum):
    """Who uses topics. Each is one Kafka principal, or several."""

    PRODUCERS = "producers"
    ANALYSTS = "analysts"
    JOB = "job"
    BACKFILL = "backfill"
    READERS = "readers"


ROLES: Mapping[Role, str] = {
    Role.PRODUCERS: "the applications that send events, and `nightjar replay`",
    Role.ANALYSTS: "people and programs that publish and approve rules, change lists, and label and snooze alerts: "
    "`nightjar rules`, `nightjar table`, `nightjar alerts label` and `snooze`, the DAG `rule_backtest`, and the pages, "
    "to show and change lists, to label and snooze alerts, and to publish and approve rules",
    Role.JOB: "`nightjar stream`; `nightjar stream rebuild` needs the rights of job and backfill",
    Role.BACKFILL: "`nightjar archive`, `nightjar backfill`, and Airflow's tasks",
    Role.READERS: "consumers of alerts and restrictions; `nightjar metrics`, `nightjar status`, `nightjar alerts`, "
    "`nightjar pages` and the pages in Airflow",
}


@dataclass(frozen=True)
class TopicRoles:
    """Access to a topic. setting: the one with the topic's name; None: the topics of all streams."""

    setting: str | None
    holds: str
    writers: tuple[Role, ...]
    readers: tuple[Role, ...]


ACCESS = (
    TopicRoles(None, "events of each stream", (Role.PRODUCERS,), (Role.JOB, Role.BACKFILL)),
    TopicRoles(
        "rules_topic",
        "rule messages and control messages",
        (Role.ANALYSTS,),
        (Role.ANALYSTS, Role.JOB, Role.BACKFILL),
    ),
    TopicRoles(
        "rule_status_topic",
        "the job's answers to them, which define the rules in force",
        (Role.JOB,),
        (Role.ANALYSTS, Role.JOB, Role.BACKFILL, Role.READERS),
    ),
    TopicRoles(
        "tables_topic",
        "changes of tables, where some are declared",
        (Role.ANALYSTS,),
        (Role.ANALYSTS, Role.JOB, Role.BACKFILL),
    ),
    TopicRoles("clock_topic", "the job's clock (arrival time)", (Role.JOB,), (Role.JOB,)),
    TopicRoles(
        "alerts_topic",
        "alerts, revisions, retractions, corrections",
        (Role.JOB, Role.BACKFILL),
        (Role.BACKFILL, Role.READERS),
    ),
    TopicRoles(
        "restrictions_topic",
        "restrictions of groups, and their lifts",
        (Role.JOB, Role.BACKFILL),
        (Role.BACKFILL, Role.READERS),
    ),
    TopicRoles("late_events_topic", "late events", (Role.JOB,), (Role.BACKFILL, Role.READERS)),
    TopicRoles("quarantine_topic", "unusable records", (Role.JOB,), (Role.BACKFILL, Role.READERS)),
    TopicRoles(
        "job_progress_topic",
        "progress reports of the job, and the archive's markers",
        (Role.JOB, Role.BACKFILL),
        (Role.JOB, Role.BACKFILL, Role.READERS),
    ),
    TopicRoles("labels_topic", "what alerts were", (Role.ANALYSTS,), (Role.BACKFILL, Role.READERS)),
    TopicRoles(
        "snoozes_topic",
        "until when groups are snoozed",
        (Role.ANALYSTS,),
        (Role.ANALYSTS, Role.BACKFILL, Role.READERS),
    ),
)

# Prefix of the ids of the transactions in which corrections are published.
TRANSACTIONAL_IDS = "nightjar"


@dataclass(frozen=True)
class TopicAccess:
    """Access to one topic, by its configured name."""

    topic: str
    access: TopicRoles


def topic_access(settings: Settings, streams: Iterable[Stream]) -> list[TopicAccess]:
    """Every topic of an installation, in the table's order."""
    named = sorted(stream.topic for stream in recorded_streams(streams))
    return [
        TopicAccess(topic, access)
        for access in ACCESS
        for topic in (named if access.setting is None else [getattr(settings, access.setting)])
    ]


@dataclass(frozen=True)
class Grant:
    """What one principal may do with one resource, in Kafka's names (`Write`, `DescribeConfigs`).

    transactional: the resource is every transactional id that begins with `name`; otherwise it is the topic `name`.
    """

    principal: str
    operations: tuple[str, ...]
    name: str
    transactional: bool = False


def default_principals() -> dict[Role, list[str]]:
    """The default principals of each role: one."""
    return {role: [f"User:nightjar-{role}"] for role in Role}


def grants(settings: Settings, streams: Iterable[Stream], principals: Mapping[Role, Iterable[str]]) -> list[Grant]:
    """Exactly the access in the table, for all principals of each role.

    The job may also create topics and read their settings, which it does when it starts.
    """
    found = []
    for each in topic_access(settings, streams):
        for role in Role:
            operations = [
                name for name, roles in (("Write", each.access.writers), ("Read", each.access.readers)) if role in roles
            ]
            if role is Role.JOB:
                operations += ["Create", "DescribeConfigs"]
            if operations:
                found += [Grant(who, (*operations, "Describe"), each.topic) for who in principals[role]]
    found += [
        Grant(who, ("Write", "Describe"), TRANSACTIONAL_IDS, transactional=True) for who in principals[Role.BACKFILL]
    ]
    return found


def acl_commands(settings: Settings, wanted: Iterable[Grant], command_config: str | None = None) -> list[str]:
    """`kafka-acls` commands, quoted for a POSIX shell, for these grants."""
    start = ["kafka-acls", "--bootstrap-server", settings.bootstrap]
    if command_config is not None:
        start += ["--command-config", command_config]
    commands = []
    for grant in wanted:
        operations = [argument for operation in grant.operations for argument in ("--operation", operation)]
        resource = ["--topic", grant.name]
        if grant.transactional:
            resource = ["--transactional-id", grant.name, "--resource-pattern-type", "prefixed"]
        commands.append([*start, "--add", "--allow-principal", grant.principal, *operations, *resource])
    return [shlex.join(command) for command in commands]


def markdown() -> str:
    """The two tables as docs/reference/security.md shows them."""
    lines = ["| role | who |", "| --- | --- |"]
    lines += [f"| `{role}` | {who} |" for role, who in ROLES.items()]
    lines += ["", "| topic (setting) | holds | writers | readers |", "| --- | --- | --- | --- |"]
    for access in ACCESS:
        name = "each stream's `topic`" if access.setting is None else f"`{access.setting}`"
        lines.append(f"| {name} | {access.holds} | {', '.join(access.writers)} | {', '.join(access.readers)} |")
    return "\n".join(lines)
