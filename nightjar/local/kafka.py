"""Runs a real Kafka broker on this machine: one KRaft process from the jars of `make jars`.

How it works: `server.properties` is generated, the storage is formatted once, and `kafka.Kafka` is started with its log
in `broker.log`. `broker.json` in the same folder records its process, so that a second start on the folder is refused,
and a broker that outlived a killed parent is stopped first. The data is kept between starts.

What it does not do: it supports neither a second broker nor security, and listens on 127.0.0.1 only. (A test's broker
with security extends `server_properties` and `settings`.)
"""

import os
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Self

from nightjar.configuration.settings import Settings
from nightjar.jvm.jars import jars, java
from nightjar.kafka.clients import KafkaError, admin
from nightjar.processes.process import HOST, ManagedProcess, Record, free_port, refuse_taken, stop_families
from nightjar.processes.running_broker import PORT, RECORD
from nightjar.rules.errors import NightjarError

# A slow core needs about 10 s, a busy machine several times that.
START_SECONDS = 90.0

# A broker with unflushed data takes a few seconds; after that it is killed (its log recovers at the next start).
STOP_SECONDS = 30.0

_NO_SECURITY: Mapping[str, object] = {"kafka": {}, "kafka_username": "", "kafka_password_file": None}

# The log is renamed to `.1` when it has this size. What Java itself prints goes to the file as it was at the start.
_LOG_SIZE = "20 MB"
_LOG4J = """
appender.out.type = RollingFile
appender.out.name = out
appender.out.fileName = {log}
appender.out.filePattern = {log}.%i
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
appender.out.policies.type = SizeBasedTriggeringPolicy
appender.out.policies.size = {size}
appender.out.strategy.type = DefaultRolloverStrategy
appender.out.strategy.max = 1
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


class LocalKafkaError(NightjarError):
    """The local broker cannot be started."""


class LocalKafka:
    """A broker under `settings.kafka_dir`, running inside a `with` block (or between `start` and `stop`).

    `port` is set by `start`; `settings` are those given, with `bootstrap_servers` set to this broker. `short_lived`
    disables Java's second compiler, which halves the processor time of a start but costs throughput later.
    """

    def __init__(self, settings: Settings, *, short_lived: bool = False) -> None:
        self.folder = settings.kafka_dir.resolve()
        self.log = self.folder / "broker.log"
        self.port = settings.kafka_port
        self._given = settings
        self._compiler = ["-XX:TieredStopAtLevel=1"] if short_lived else []
        self._process: ManagedProcess | None = None
        self._record = Record(self.folder / RECORD)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port` of the running broker."""
        return f"{HOST}:{self.port}"

    @property
    def settings(self) -> Settings:
        """The given settings, connecting to this broker."""
        return self._given.model_copy(update={"bootstrap_servers": self.bootstrap, **_NO_SECURITY})

    @property
    def pid(self) -> int | None:
        """The broker's process id, None if it is not running."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the broker and return once it responds.

        Raises:
            LocalKafkaError: another broker is running on the folder, the port is taken, or it did not come up; the
                message includes the end of its log.
            JarsError: its jars, or java, are missing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settle_predecessor()
        if self.port:
            refuse_taken(self.port, "kafka_port", LocalKafkaError, ", or bootstrap_servers to use it")
        port, controller_port = self.port or free_port(), free_port()
        self._write_configuration(port, controller_port)
        self._format_storage()
        arguments = [str(self.folder / "server.properties")]
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        command = self._command("kafka.Kafka", arguments, logging, heap=self._given.kafka_heap)
        self.port, self._process = port, ManagedProcess("the broker", command, self.log, LocalKafkaError)
        self._process.start()
        try:
            self._record.write({"broker": self._process})
            self._process.await_ready(lambda: _listens(self.port) and self._answers(), START_SECONDS)
        except BaseException:
            self.stop()
            raise
        (self.folder / PORT).write_text(f"{port}\n")

    def stop(self) -> None:
        """Stop the broker cleanly, or kill it after `STOP_SECONDS`; does nothing if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.stop(STOP_SECONDS)
        self._record.remove()
        (self.folder / PORT).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise LocalKafkaError if the broker has exited on its own."""
        if self._process is not None:
            self._process.check()

    def _settle_predecessor(self) -> None:
        remedy = "Stop it first, or set data_dir and kafka_port to others"
        stop_families(self._record.left_behind("a broker", LocalKafkaError, remedy), STOP_SECONDS)
        self._record.remove()

    def server_properties(self, port: int, controller_port: int) -> dict[str, object]:
        """The broker's configuration, in Kafka's own names."""
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 4,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            # The default of 128 MB would be a quarter of the heap, for compaction that hardly happens here.
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
        }

    def _write_configuration(self, port: int, controller_port: int) -> None:
        properties = self.server_properties(port, controller_port)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.properties").write_text(_LOG4J.format(log=self.log, size=_LOG_SIZE))

    def _format_storage(self) -> None:
        if (self.folder / "data" / "meta.properties").is_file():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["format", f"--cluster-id={cluster}", "--config", str(self.folder / "server.properties")]
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", arguments, heap="128m"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LocalKafkaError(
                f"the storage could not be formatted: {_last_lines(done.stdout + done.stderr)}",
                where=str(self.folder),
                remedy="Remove the folder if its data is not needed",
            )

    def _command(self, main_class: str, arguments: Sequence[str], *own: str, heap: str) -> list[str]:
        class_path = os.pathsep.join(str(jar) for jar in jars("kafka"))
        options = [f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true"]
        return [java(), *options, *self._compiler, *own, "-cp", class_path, main_class, *arguments]

    def _answers(self) -> bool:
        try:
            with admin(self.settings) as client:
                return bool(client.describe_cluster()["brokers"])
        except KafkaError:
            return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def _last_lines(text: str, count: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-count:])
