"""What an administrator does on a broker with an authorizer: grants access, and adds logins.

Both are idempotent. Neither removes anything: access that the table no longer has is for `kafka-acls --remove`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from nightjar.configuration.kafka_security import password_in
from nightjar.configuration.settings import Settings
from nightjar.kafka.acls import Grant
from nightjar.kafka.clients import KafkaError, admin, explained

_OPERATIONS = {
    "Read": ACLOperation.READ,
    "Write": ACLOperation.WRITE,
    "Create": ACLOperation.CREATE,
    "Describe": ACLOperation.DESCRIBE,
    "DescribeConfigs": ACLOperation.DESCRIBE_CONFIGS,
}
# Kafka's default is its least. A login costs the client this many hashes, a few milliseconds.
_ITERATIONS = 8192


def grant(settings: Settings, grants: Iterable[Grant]) -> int:
    """Add the access control entries; returns how many the brokers now have of these.

    Raises:
        KafkaError: no broker responds, the brokers have no authorizer, or this login may not alter the cluster.
    """
    entries = [
        ACL(each.principal, "*", _OPERATIONS[operation], ACLPermissionType.ALLOW, _pattern(each))
        for each in grants
        for operation in each.operations
    ]
    with admin(settings) as client, explained(settings, "granting access"):
        answer = client.create_acls(entries)
    if answer["failed"]:
        reasons = sorted({failed.__name__ for failed in answer["failed"]})
        raise KafkaError(
            f"access was not granted: {', '.join(reasons)}",
            where=f"Kafka at {settings.bootstrap}",
            remedy="The brokers need an authorizer (authorizer.class.name), and this login the right to alter the "
            "cluster (super.users)",
        )
    return len(entries)


def add_logins(settings: Settings, password_files: Mapping[str, Path]) -> None:
    """Let users log in by SCRAM-SHA-512, each with the password in its file; a user's former password ends.

    Raises:
        KafkaError: no broker responds, or this login may not add users.
        SettingsError: a file holds no password.
    """
    wanted = [
        UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, password_in(file, user), _ITERATIONS)
        for user, file in password_files.items()
    ]
    with admin(settings) as client, explained(settings, "adding logins"):
        answer = client.alter_user_scram_credentials(wanted)
    for user, failure in answer.items():
        if failure is not None:
            raise KafkaError(
                f"the login {user} was not added: {failure}",
                where=f"Kafka at {settings.bootstrap}",
                remedy="This login needs the right to alter the cluster (super.users)",
            )


def _pattern(grant: Grant) -> ResourcePattern:
    if grant.transactional:
        return ResourcePattern(ResourceType.TRANSACTIONAL_ID, grant.name, ACLResourcePatternType.PREFIXED)
    return ResourcePattern(ResourceType.TOPIC, grant.name)
