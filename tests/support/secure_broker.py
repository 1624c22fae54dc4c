"""A broker as in production: clients log in by SCRAM over TLS, and an authorizer allows nothing that no ACL grants.

Administrators use another listener, with a certificate (`User:CN=admin`, a super user as the broker is).
"""

from pathlib import Path

from nightjar.configuration.settings import Settings, load_settings
from nightjar.deployment.certificates import Authority, write_secret
from nightjar.local.kafka import LocalKafka
from nightjar.processes.process import HOST, free_port


class SecureKafka(LocalKafka):
    """`settings` are the administrator's; `settings_of` those of a user that logs in."""

    def __init__(self, folder: Path) -> None:
        super().__init__(load_settings(data_dir=folder, kafka_port=0, kafka_heap="384m"), short_lived=True)
        self.certificates = folder / "certificates"
        self.certificates.mkdir(parents=True)
        authority = Authority.new()
        self.ca = self.certificates / "ca.pem"
        self.ca.write_bytes(authority.pem)
        for name, hosts in (("broker", [HOST, "localhost"]), ("admin", [])):
            write_secret(self.certificates / f"{name}.pem", b"".join(authority.certificate_for(name, hosts)))
        self._clients = free_port()

    def server_properties(self, port: int, controller_port: int) -> dict[str, object]:
        """`port` is the administrators'."""
        listeners = [f"ADMINS://{HOST}:{port}", f"CLIENTS://{HOST}:{self._clients}"]
        return super().server_properties(port, controller_port) | {
            "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{controller_port}"]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": "ADMINS:SSL,CLIENTS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "ADMINS",
            "ssl.client.auth": "required",
            "listener.name.clients.ssl.client.auth": "none",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:CN=broker;User:CN=admin",
        }

    @property
    def settings(self) -> Settings:
        """Those of the administrator."""
        security = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates / "admin.pem"),
        }
        return load_settings(data_dir=self.folder.parent, bootstrap_servers=self.bootstrap, kafka=security)

    def settings_of(self, user: str, **changes: object) -> Settings:
        """Those of a user whose password is in a file of its name."""
        security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        given = {
            "data_dir": self.folder.parent / user,
            "bootstrap_servers": f"{HOST}:{self._clients}",
            "kafka": security,
            "kafka_username": user,
            "kafka_password_file": self.password_file(user),
        }
        return load_settings(**{**given, **changes})

    def password_file(self, user: str) -> Path:
        """Where the user's password is."""
        return self.certificates / f"{user}.password"
