"""Every setting of nightjar: one table of name, default and help.

A setting is read from the environment (`NIGHTJAR_BUCKETS=8`), else from a TOML file (`buckets = 8` in `nightjar.toml`,
or in the file that `NIGHTJAR_SETTINGS` names), else the default below applies. `make docs` generates the table in
docs/reference/settings.md from this class.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from nightjar.contracts.topics import Topics
from nightjar.installation import JAR_DIR
from nightjar.rules.durations import Duration, format_duration
from nightjar.rules.errors import SettingsError
from nightjar.rules.foreign import Forms
from nightjar.storage.paths import AnyPath, check_options, checked, place_of

PREFIX = "NIGHTJAR_"
FILE_VARIABLE = "NIGHTJAR_SETTINGS"
DEFAULT_FILE = "nightjar.toml"

AirflowRole = Literal["viewer", "user", "op", "admin"]

# DAGs whose schedule may be set.
SCHEDULED = ("archive", "lake_maintenance", "nightly_backfill", "stream_watchdog")

# Spark settings that have a setting of their own here; `spark_conf` rejects them.
_SPARK_SETTINGS = {"spark.master": "spark_master", "spark.driver.memory": "driver_memory"}

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # one slash: a Path merges two


def _kafka_names(value: Any) -> Any:
    """Flatten to Kafka's dotted names: in TOML, `security.protocol = "SSL"` with an unquoted key is a nested table."""
    if not isinstance(value, Mapping):
        return value
    flat = _flattened(value)
    for name in flat:
        if not name.startswith(("security.", "sasl.", "ssl.")):
            raise ValueError(f"{name!r} is not a Kafka security setting: names begin with security., sasl. or ssl.")
    return flat


def _schedules(value: dict[str, str]) -> dict[str, str]:
    """Refuse what is not a schedule of one of nightjar's DAGs, as a DAG that cannot be parsed vanishes from Airflow."""
    from croniter import croniter

    for name, cron in value.items():
        if name not in SCHEDULED:
            raise ValueError(f"{name!r} is not a DAG with a schedule: these are {', '.join(SCHEDULED)}")
        if cron != "off" and not croniter.is_valid(cron):
            raise ValueError(f"{cron!r} is not a cron expression. Write one, such as 0 3 * * *, or off")
    return value


def _spark_names(value: Any) -> Any:
    """Flatten to Spark's dotted names, which are nested tables in TOML unless quoted."""
    if not isinstance(value, Mapping):
        return value
    flat = {name: str(of).lower() if isinstance(of, bool) else str(of) for name, of in _flattened(value).items()}
    for name in flat:
        if not name.startswith("spark."):
            raise ValueError(f"{name!r} is not a Spark setting: names begin with spark.")
        if name in _SPARK_SETTINGS:
            raise ValueError(f"set {name} with the setting {_SPARK_SETTINGS[name]}")
        if "secret" in name.lower() or "password" in name.lower():
            raise ValueError(
                f"{name} would be visible to everybody on the command line of Spark's JVM. Put it into "
                "spark-defaults.conf, in the folder that SPARK_CONF_DIR names"
            )
    return flat


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _no_url(value: Any) -> Any:
    """Reject URLs: as a Path, `s3a://bucket/lake` would be a folder called `s3a:` in the working directory."""
    if _URL.match(str(value)):
        raise ValueError("URLs are not supported: give the path of a local folder, or one mounted on every machine")
    return value


def _location(value: Any) -> Any:
    """Check a folder that may be in an object store; a file URL becomes its path."""
    return value if value is None else checked(str(value))


def _access(value: Any, info: ValidationInfo) -> Any:
    """Check the options against the kinds of stores of the folders, which are declared before them."""
    if not isinstance(value, Mapping):
        return value
    places = [place for name in ("lake_dir", "checkpoint_dir") if (place := info.data.get(name))]
    try:
        check_options({str(name): str(of) for name, of in value.items()}, places)
    except SettingsError as error:
        raise ValueError(f"{error.where.partition(': ')[2]}: {error.what}. {error.remedy}") from None
    return value


Port = Annotated[int, Field(ge=0, le=65535)]
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
LocalPath = Annotated[Path, BeforeValidator(_no_url)]
Location = Annotated[str, BeforeValidator(_location)]
StorageOptions = Annotated[dict[str, str], BeforeValidator(_access)]
SparkConf = Annotated[dict[str, str], BeforeValidator(_spark_names)]
KafkaSecurity = Annotated[dict[str, SecretStr], BeforeValidator(_kafka_names)]


def _as_written(text: str) -> Any:
    """A default written as users write it; it is parsed like their values."""
    return text


class Settings(BaseSettings):
    """The settings table.

    Durations are written `10s`, `5m`, `7d` and are int microseconds in the program; paths are relative to the working
    directory.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True, env_ignore_empty=True
    )

    bootstrap_servers: str = Field(
        "",
        description="Kafka brokers, `host:port,host:port`. Empty: the local broker of `nightjar up` with this "
        "`data_dir`; another's on its port is refused.",
    )
    kafka: KafkaSecurity = Field(
        {},
        description="Security settings in Kafka's own names (`security.protocol`, `sasl.*`, `ssl.*`), given to every "
        "client. Never printed. In the environment as one JSON object.",
    )
    kafka_username: str = Field(
        "",
        description="Name to log in to Kafka with, by SASL (`sasl.mechanism` in `kafka`: SCRAM-SHA-512, PLAIN, ...).",
    )
    kafka_password_file: LocalPath | None = Field(
        None, description="File that holds the password of `kafka_username`, readable by its owner only."
    )
    schema_registry: Annotated[str, Field(pattern=r"^(https?://[^\s@]+)?$")] = Field(
        "",
        description="URL of the schema registry, by Confluent's interface, for streams in Avro or Protobuf without a "
        "schema file, and for `nightjar alerts forward --avro`. Each schema is asked for once and kept in the lake.",
    )
    schema_registry_login_file: LocalPath | None = Field(
        None, description="File that holds user:password for the registry, readable by its owner only."
    )
    schema_registry_ca_file: LocalPath | None = Field(
        None, description="Certificate of the authority that signed the registry's (PEM). Empty: the usual ones."
    )
    data_dir: LocalPath = Field(
        Path(".nightjar"), description="Folder of all local data: the local broker's data, checkpoints, logs."
    )
    kafka_port: Port = Field(19092, description="Port of the local broker. 0: any free one.")
    kafka_heap: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = Field(
        "512m", description="Java heap size of the local broker."
    )

    streams: LocalPath | None = Field(None, description="TOML file of stream declarations. Empty: the shipped ones.")
    arrival: Literal["broker", "producer"] = Field(
        "broker",
        description="Who sets the arrival time: `broker` (LogAppendTime), or `producer` (CreateTime), for replays.",
    )
    activation_delay: Duration = Field(
        _as_written("5s"),
        description="A rule without an `effective` time takes effect this long after its message arrived.",
    )

    approvals: Annotated[int, Field(ge=0, le=1)] = Field(
        0,
        description="Approvals that a published version needs before it takes effect. 1: that of a second person, by "
        "`nightjar rules approve`.",
    )

    imported_stream: str = Field(
        "payments", description="Stream of rules in the form of the Flink demo, which name none."
    )
    soft_delete_column: str = Field(
        "deleted", description="Column of a table of rules that marks a row as deleted, for rules from a database."
    )

    rules_topic: TopicName = Field(
        Topics.rules, description="Topic of rule messages and control messages. Kept forever."
    )
    rule_status_topic: TopicName = Field(
        Topics.rule_status,
        description="Topic of the job's answers to rule messages, which define the rules in force. Kept forever.",
    )
    tables_topic: TopicName = Field(
        Topics.tables, description="Topic of changes of tables, where some are declared. Kept forever."
    )
    alerts_topic: TopicName = Field(Topics.alerts, description="Topic of alerts, revisions and retractions.")
    restrictions_topic: TopicName = Field(
        Topics.restrictions, description="Topic of restrictions of groups, and their lifts, by the `action` of rules."
    )
    late_events_topic: TopicName = Field(
        Topics.late_events, description="Topic of events that arrived after their stream's allowed lateness."
    )
    quarantine_topic: TopicName = Field(
        Topics.quarantine, description="Topic of unusable records (dead letters), with the reason."
    )
    clock_topic: TopicName = Field(
        Topics.clock, description="Topic of the job's clock, which advances arrival time even when no events arrive."
    )
    job_progress_topic: TopicName = Field(Topics.job_progress, description="Topic of the job's progress reports.")
    labels_topic: TopicName = Field(
        Topics.labels, description="Topic of labels: what alerts were, by analysts and chargebacks."
    )
    snoozes_topic: TopicName = Field(
        Topics.snoozes,
        description="Topic of snoozes: until when alerts of a rule about a group need nobody's attention.",
    )
    partitions: PositiveInt = Field(
        2,
        description="Partitions of a topic when it is created "
        "(`rules`, `rule-status`, `clock`, `job-progress` and `snoozes` have one).",
    )
    replication_factor: Annotated[int, Field(ge=-1, le=32767)] = Field(
        -1, description="Replicas of a topic when it is created. -1: the brokers' default."
    )
    event_retention: Duration = Field(
        _as_written("7d"),
        description="How long event topics keep records. With `arrival = producer` records are kept forever.",
    )
    alert_retention: Duration = Field(
        _as_written("30d"),
        description="How long alerts, restrictions, late events, quarantined records, progress and labels are kept.",
    )

    lake_dir: Location | None = Field(
        None,
        description="Folder of the lake's tables: a path, or a URL of an object store. Empty: `lake` in `data_dir`.",
    )
    checkpoint_dir: Location | None = Field(
        None,
        description="Folder of the job's checkpoint: a path, or a URL of an object store. Empty: `checkpoint` in "
        "`data_dir`.",
    )
    storage_options: StorageOptions = Field(
        {},
        description="How the object store is reached: `credentials_file` (empty: the store's usual chain, such as the "
        "machine's role), `endpoint` (empty: the provider's), for S3 and Azure the file's `profile`, for S3 the "
        "`region`. In the environment as one JSON object.",
    )
    # In local mode Spark fails a job at a task's first failure unless the master gives a number of tries.
    spark_master: str = Field(
        "local[*,4]",
        description="Spark master of the job and of backfills. `local[N,4]`: N cores and up to four tries per task; "
        "`spark://host:port`: a cluster.",
    )
    spark_conf: SparkConf = Field(
        {},
        description="Further Spark settings in Spark's own names (`spark.executor.memory`, `spark.cores.max`, ...). In "
        "the environment as one JSON object.",
    )
    code_archive: LocalPath | None = Field(
        None,
        description="Archive of nightjar's code (`make dist`) that executors of a cluster are given, with the jars. "
        "Empty: their machines have the checkout at the same path.",
    )
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = Field(
        "2g", description="Java heap size of the Spark driver."
    )
    latency: Literal["micro-batch", "real-time"] = Field(
        "micro-batch",
        description="How the job runs: in micro-batches, or in real time, with alerts after tens of milliseconds, on "
        "one machine.",
    )
    real_time_batch: Duration = Field(
        _as_written("5m"),
        description="How long a batch lasts in real time. State is stored and offsets are committed at its end, which "
        "delays alerts by about a second; after a crash at most one batch is evaluated again.",
    )
    shuffle_partitions: PositiveInt = Field(
        2, description="Tasks of the job's evaluation stage. At most the number of cores."
    )
    buckets: PositiveInt | None = Field(
        None,
        description="Buckets of keyed state; use 1 to 4 per shuffle partition, and 1 in real time. Empty: as many as "
        "the checkpoint has; a new one 4, or 1 in real time. `nightjar stream rebuild --buckets` changes the number "
        "for an existing checkpoint.",
    )
    max_offsets_per_trigger: PositiveInt | None = Field(
        None,
        description="Most records that one micro-batch reads. Empty: as many as the job can process in two seconds.",
    )
    alerts_per_rule_and_hour: PositiveInt | None = Field(
        None,
        description="Alerts of a rule in an hour of event time after which further ones are marked `overflow`. Empty: "
        "none is.",
    )
    slow_batch_warning: Duration = Field(
        _as_written("5s"), description="A micro-batch that takes longer is logged as a warning."
    )
    warm_up_batches: NonNegativeInt = Field(
        8,
        description="Micro-batches of synthetic events, and of the newest in each partition, that warm up the JVM "
        "before traffic; nothing is published. 0: a faster start, but slower first batches.",
    )
    max_retained_events: PositiveInt = Field(
        50_000_000,
        description="Most events that one rule may retain, estimated as its stream's events per day x its widest "
        "window.",
    )
    priming_rate: NonNegativeInt = Field(
        20_000,
        description="Most events per second that the job reads from the lake, and from Kafka, to prime a rule whose "
        "windows reach back before its state. 0: such a rule starts without that history.",
    )
    staging_retention: Duration = Field(
        _as_written("7d"),
        description="How long the staged data of a finished backfill is kept. That of a failed one is kept at least "
        "until its day has been run again.",
    )
    pending_days: PositiveInt = Field(
        31,
        description="How many days back to look for pending days: days without a finished backfill, or with newer "
        "rules.",
    )
    expectations: LocalPath | None = Field(
        None,
        description="Folder of expectations of your own, which the gate checks too: `SUITE/NAME.toml` has conditions "
        "in SQL, `.json` and `.py` a suite of Great Expectations. A `.py` is run with the rights of the night: let "
        "nobody else write there.",
    )
    lake_retention: dict[str, Duration] = Field(
        {},
        description="How long `nightjar lake maintain` keeps the rows of a table, by its name; `events`: those of all "
        'streams, such as `{events = "400d", quarantine = "90d"}`. Tables that are not named keep all rows. In the '
        "environment as one JSON object.",
    )
    lake_file_retention: Duration = Field(
        _as_written("7d"),
        description="`nightjar lake maintain` deletes a table's file once no version has needed it for so long. Longer "
        "than any run of a backfill or backtest.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="Address on which `nightjar metrics` listens. One that other machines reach needs the three files "
        "below.",
    )
    metrics_port: Port = Field(9464, description="Port of `nightjar metrics`. 0: any free one.")
    metrics_certificate: LocalPath | None = Field(None, description="Certificate of `nightjar metrics` (PEM), for TLS.")
    metrics_key: LocalPath | None = Field(None, description="Key of that certificate (PEM).")
    metrics_client_ca: LocalPath | None = Field(
        None, description="Certificates of the authority (PEM) that must have signed a client's certificate."
    )
    alert_routes: LocalPath | None = Field(
        None, description="TOML file of where `nightjar alerts notify` sends which alerts (docs/how-to/notify.md)."
    )
    outbox: LocalPath | None = Field(
        None,
        description="SQLite file of what `nightjar alerts notify` has yet to deliver, on a local disk. Empty: "
        "`outbox.sqlite` in `data_dir`.",
    )
    notifier_port: Port = Field(
        9465,
        description="Port of the metrics of `nightjar alerts notify`, on `metrics_host` and with the same "
        "certificates. 0: any free one.",
    )
    notify_connection: str = Field(
        "",
        description="Id of the Airflow connection that failed tasks are reported over: of type `http`, a webhook that "
        'takes `{"text": ...}`; of type `smtp`, mail. Empty: nobody is notified.',
    )
    schedules: Annotated[dict[str, str], AfterValidator(_schedules)] = Field(
        {},
        description="When a DAG runs, by its id, as a cron expression in UTC, such as "
        '`{archive = "*/5 * * * *", lake_maintenance = "0 3 * * 6"}`; `off`: never by itself. DAGs: '
        f"{', '.join(SCHEDULED)}. In the environment as one JSON object.",
    )
    airflow_users: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")], AirflowRole] = Field(
        {},
        description="Users of the local Airflow besides `admin`, and their roles: `viewer` looks, `user` also "
        "triggers, clears and approves, `op` also changes pools and connections. Their passwords are generated. In the "
        "environment as one JSON object.",
    )
    airflow_port: Port = Field(8080, description="Port of the local Airflow. 0: any free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of messages to log."
    )

    @property
    def forms(self) -> Forms:
        """What rule messages in forms of other systems leave open."""
        return Forms(self.imported_stream, self.soft_delete_column)

    @property
    def bootstrap(self) -> str:
        """`host:port,…` to connect to: the configured brokers, else the local one."""
        if self.bootstrap_servers:
            return self.bootstrap_servers
        return f"127.0.0.1:{self.kafka_port or _recorded_port(self.kafka_dir)}"

    @property
    def kafka_dir(self) -> Path:
        """Folder of the local broker."""
        return self.data_dir / "kafka"

    @property
    def checkpoint(self) -> AnyPath:
        """Folder of the job's checkpoint."""
        return place_of(self.checkpoint_dir or self.data_dir / "checkpoint", self.storage_options)

    @property
    def lake(self) -> AnyPath:
        """Folder of the lake."""
        return place_of(self.lake_dir or self.data_dir / "lake", self.storage_options)

    @property
    def outbox_file(self) -> Path:
        """File of what the notifier has yet to deliver."""
        return self.outbox or self.data_dir / "outbox.sqlite"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  passed by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the TOML file; no .env file, which may belong to another program."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _from_file())


def load_settings(**overrides: Any) -> Settings:
    """Load the settings; `overrides` take precedence over the environment and the file.

    Raises:
        SettingsError: an unknown name or an invalid value.
    """
    _refuse_unknown_variables()
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise _explained(error, overrides) from None
    except SourceError as error:
        raise SettingsError(
            f"cannot be read: {error.__cause__ or error}",
            where="environment",
            remedy="NIGHTJAR_KAFKA, NIGHTJAR_SPARK_CONF and NIGHTJAR_STORAGE_OPTIONS take one JSON object each",
        ) from None


def settings_table() -> list[tuple[str, str, str]]:
    """(name, default as users write it, help) of every setting, in order; shown in docs/reference/settings.md."""
    return [
        (name, _written(name, field.default), field.description or "") for name, field in Settings.model_fields.items()
    ]


def _written(name: str, default: Any) -> str:
    if default is None or default == {}:
        return ""
    return (
        format_duration(default)
        if isinstance(default, int) and name.endswith(("_retention", "_delay", "_warning"))
        else str(default)
    )


def _recorded_port(kafka_dir: Path) -> str:
    try:
        return (kafka_dir / "port").read_text().strip()
    except OSError:
        raise SettingsError(
            "the port of the local broker is unknown",
            where=str(kafka_dir),
            remedy="Run `nightjar up`, or set kafka_port or bootstrap_servers",
        ) from None


def _from_file() -> dict[str, Any]:
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named or DEFAULT_FILE)
    if not named and not path.is_file():
        return {}
    try:
        # Not TomlConfigSettingsSource: it ignores a named file that is missing or not a regular file.
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"cannot be read ({error.strerror})", where=str(path), remedy=f"Set {FILE_VARIABLE} to a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"is not TOML: {error}", where=str(path), remedy="docs/reference/settings.md has an example"
        ) from None


def _refuse_unknown_variables() -> None:
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX).lower()
        known = variable in (FILE_VARIABLE, JAR_DIR) or name in Settings.model_fields
        if variable.startswith(PREFIX) and not known:
            raise SettingsError("unknown setting", where=variable, remedy=_nearest(name))


def _explained(error: ValidationError, overrides: Mapping[str, Any]) -> SettingsError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if name in overrides:
        where = name
    elif f"{PREFIX}{name}".upper() in os.environ:
        where = f"{PREFIX}{name}".upper()
    else:
        where = f"{os.environ.get(FILE_VARIABLE, DEFAULT_FILE)}: {name}"
    if first["type"] == "extra_forbidden":
        return SettingsError("unknown setting", where=where, remedy=_nearest(name))
    message = first["msg"].removeprefix("Value error, ")
    if name == "kafka":  # the value may be a password
        return SettingsError(message, where=where, remedy="Give an object of Kafka's setting names and text values")
    if name == "storage_options" or "@" in str(first["input"]):  # likewise
        return SettingsError(message, where=where, remedy=Settings.model_fields[name].description or "")
    field = Settings.model_fields[name]
    return SettingsError(
        f"{first['input']!r} is not valid: {message}",
        where=where,
        remedy=f"The default is {_written(name, field.default) or 'empty'}. {field.description}",
    )


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, list(Settings.model_fields), n=1)
    return f"Did you mean {found[0]}?" if found else "docs/reference/settings.md lists them all"
