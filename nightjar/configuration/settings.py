"""Every setting of nightjar: one table of name, default and help.

A setting comes from the environment (`NIGHTJAR_BUCKETS=8`), else from a TOML file (`buckets = 8` in `nightjar.toml`, or
in the file that `NIGHTJAR_SETTINGS` names), else from the table below, from which `make docs` makes the table in
docs/reference/settings.md.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from rules.durations import Duration, format_duration
from rules.errors import SettingsError

PREFIX = "NIGHTJAR_"
FILE_VARIABLE = "NIGHTJAR_SETTINGS"
DEFAULT_FILE = "nightjar.toml"

# What settings of ours say; Spark's own names for it are refused in `spark_conf`.
_SPARK_SETTINGS = {"spark.master": "spark_master", "spark.driver.memory": "driver_memory"}

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path has made one slash of two


def _kafka_names(value: Any) -> Any:
    """Kafka's dotted names; `security.protocol = "SSL"` without quotes round the key is a nested table in TOML."""
    if not isinstance(value, Mapping):
        return value
    flat = _flattened(value)
    for name in flat:
        if not name.startswith(("security.", "sasl.", "ssl.")):
            raise ValueError(f"{name!r} is no security setting of Kafka: names begin with security., sasl. or ssl.")
    return flat


def _spark_names(value: Any) -> Any:
    """Spark's dotted names; TOML makes nested tables of them where they are not quoted."""
    if not isinstance(value, Mapping):
        return value
    flat = {name: str(of).lower() if isinstance(of, bool) else str(of) for name, of in _flattened(value).items()}
    for name in flat:
        if not name.startswith("spark."):
            raise ValueError(f"{name!r} is not a Spark setting: names begin with spark.")
        if name in _SPARK_SETTINGS:
            raise ValueError(f"{name} is decided by the setting {_SPARK_SETTINGS[name]}")
        if "secret" in name.lower() or "password" in name.lower():
            raise ValueError(
                f"{name} would be on the command line of Spark's JVM, which everybody can read. Put it into "
                "spark-defaults.conf, in the folder that SPARK_CONF_DIR names"
            )
    return flat


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _no_url(value: Any) -> Any:
    """As a Path, `s3a://bucket/lake` would be a folder called `s3a:` in the working folder."""
    if _URL.match(str(value)):
        raise ValueError(
            "it is a URL. Only a local folder, or one that is mounted on every machine, is supported: give its path"
        )
    return value


Port = Annotated[int, Field(ge=0, le=65535)]
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
LocalPath = Annotated[Path, BeforeValidator(_no_url)]
SparkConf = Annotated[dict[str, str], BeforeValidator(_spark_names)]
KafkaSecurity = Annotated[dict[str, SecretStr], BeforeValidator(_kafka_names)]


def _as_written(text: str) -> Any:
    """A default in the form that people write: it is read as what they give is."""
    return text


class Settings(BaseSettings):
    """The table.

    Durations are written `10s`, `5m`, `7d` and are int microseconds in the program; paths are relative to the working
    folder.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True, env_ignore_empty=True
    )

    bootstrap_servers: str = Field(
        "", description="Kafka brokers, `host:port,host:port`. Empty: the local broker of `nightjar up`."
    )
    kafka: KafkaSecurity = Field(
        {},
        description="Security settings in Kafka's own names (`security.protocol`, `sasl.*`, `ssl.*`), given to every "
        "client. Never printed. In the environment as one JSON object.",
    )
    data_dir: LocalPath = Field(
        Path(".nightjar"), description="Folder of everything local: the local broker's data, checkpoints, logs."
    )
    kafka_port: Port = Field(19092, description="Port of the local broker. 0: any free one.")
    kafka_heap: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = Field(
        "512m", description="Heap of the local broker, as Java writes it."
    )

    streams: LocalPath | None = Field(None, description="TOML file of stream declarations. Empty: the shipped ones.")
    arrival: Literal["broker", "producer"] = Field(
        "broker",
        description="Who stamps a record's arrival: `broker` (LogAppendTime), or `producer` (CreateTime), for replays.",
    )
    activation_delay: Duration = Field(
        _as_written("5s"), description="A rule takes effect this long after its message arrived, unless it says when."
    )

    rules_topic: TopicName = Field("rules", description="Topic of rule messages and control messages. Kept forever.")
    rule_status_topic: TopicName = Field(
        "rule-status",
        description="Topic of the answers to rule messages, which say which rules there are. Kept forever.",
    )
    alerts_topic: TopicName = Field("alerts", description="Topic of alerts, revisions and retractions.")
    late_events_topic: TopicName = Field(
        "late-events", description="Topic of events that arrived after their stream's allowed lateness."
    )
    quarantine_topic: TopicName = Field(
        "quarantine", description="Topic of records that cannot be used, with the reason."
    )
    clock_topic: TopicName = Field(
        "clock", description="Topic of the job's clock: how far arrival has come, also when no events come."
    )
    job_progress_topic: TopicName = Field(
        "job-progress", description="Topic on which the job tells what each micro-batch did."
    )
    partitions: PositiveInt = Field(
        2,
        description="Partitions of a topic when it is created "
        "(`rules`, `rule-status`, `clock` and `job-progress` have one).",
    )
    replication_factor: Annotated[int, Field(ge=-1, le=32767)] = Field(
        -1, description="Replicas of a topic when it is created. -1: what the brokers say."
    )
    event_retention: Duration = Field(
        _as_written("7d"),
        description="How long event topics keep records. With `arrival = producer` they keep them forever.",
    )
    alert_retention: Duration = Field(
        _as_written("30d"), description="How long alerts, late events, quarantined records and progress are kept."
    )

    lake_dir: LocalPath | None = Field(None, description="Folder of the lake's tables. Empty: `lake` in `data_dir`.")
    checkpoint_dir: LocalPath | None = Field(
        None, description="Folder of the job's checkpoint. Empty: `checkpoint` in `data_dir`."
    )
    # Spark on one machine gives up at a task's first failure unless it is told how often it may fail, as a cluster is.
    spark_master: str = Field(
        "local[*,4]",
        description="Spark master of the job and of the nights; `local[N,4]`: N cores, and a task may be tried four "
        "times; `spark://host:port`: a cluster.",
    )
    spark_conf: SparkConf = Field(
        {},
        description="Further settings of Spark in its own names (`spark.executor.memory`, `spark.cores.max`, ...). In "
        "the environment as one JSON object.",
    )
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = Field(
        "2g", description="Heap of the Spark driver, as Java writes it."
    )
    shuffle_partitions: PositiveInt = Field(
        2, description="Tasks of the job's evaluating stage. At most the number of cores."
    )
    buckets: PositiveInt = Field(
        4,
        description="Buckets of keyed state; 1 to 4 a shuffle partition is good. "
        "`nightjar stream rebuild --buckets` changes them.",
    )
    max_offsets_per_trigger: PositiveInt | None = Field(
        None,
        description="Most records one micro-batch reads. Empty: what takes the job about two seconds.",
    )
    slow_batch_warning: Duration = Field(
        _as_written("5s"), description="A micro-batch that takes longer is logged as a warning."
    )
    warm_up_batches: NonNegativeInt = Field(
        8, description="Micro-batches of made-up events before traffic, for the compilers. 0: a quicker, colder start."
    )
    max_retained_events: PositiveInt = Field(
        50_000_000,
        description="Most events one rule may retain, by an estimate: events a day of its stream x its widest window.",
    )
    staging_retention: Duration = Field(
        _as_written("7d"),
        description="How long the staged folder of a finished backfill is kept; that of a failed one is kept at least "
        "until its day has been run again.",
    )
    pending_days: PositiveInt = Field(
        31, description="How many days back days without a finished backfill, or with newer rules, are looked for."
    )
    airflow_port: Port = Field(8080, description="Port of the local Airflow. 0: any free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least level that is logged."
    )

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
    def checkpoint(self) -> Path:
        """Folder of the job's checkpoint."""
        return self.checkpoint_dir or self.data_dir / "checkpoint"

    @property
    def lake(self) -> Path:
        """Folder of the lake."""
        return self.lake_dir or self.data_dir / "lake"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the caller names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the TOML file; no .env file, which may belong to another program."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _from_file())


def load_settings(**overrides: Any) -> Settings:
    """The settings in force; `overrides` win over the environment and the file.

    Raises:
        SettingsError: an unknown name or a value that cannot be; says where, what was found and what would be right.
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
            remedy="NIGHTJAR_KAFKA and NIGHTJAR_SPARK_CONF take one JSON object each",
        ) from None


def settings_table() -> list[tuple[str, str, str]]:
    """(name, default as one writes it, help) of every setting, in order; what docs/reference/settings.md shows."""
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
        # No TomlConfigSettingsSource: it passes over a named file that is missing, or is no regular file.
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"cannot be read ({error.strerror})", where=str(path), remedy=f"{FILE_VARIABLE} names a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"is not TOML: {error}", where=str(path), remedy="docs/reference/settings.md has an example"
        ) from None


def _refuse_unknown_variables() -> None:
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and variable != FILE_VARIABLE and name not in Settings.model_fields:
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
        return SettingsError(message, where=where, remedy="Give an object of Kafka's names and text values")
    field = Settings.model_fields[name]
    return SettingsError(
        f"{first['input']!r} cannot be used: {message}",
        where=where,
        remedy=f"The default is {_written(name, field.default) or 'empty'}. {field.description}",
    )


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, list(Settings.model_fields), n=1)
    return f"Did you mean {found[0]}?" if found else "docs/reference/settings.md lists them all"
