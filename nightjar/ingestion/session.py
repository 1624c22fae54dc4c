"""Starts Spark sessions, with the settings that the stream's and the lake's have in common."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from nightjar.ingestion.spark_config import SparkConfig
from nightjar.rules.errors import NightjarError
from nightjar.storage.paths import AnyPath, access_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop's local file system starts a `chmod` process for every file it creates; this one sets permissions itself.
_LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_LOCAL_FILES_JAR = "hadoop-bare-naked-local-fs-"

_log = structlog.get_logger(__name__)

_OTHERS = 0o077

# Masters for which Spark generates the secret of `spark.authenticate`; others take it from their own settings.
_SECRET_MADE_BY_SPARK = ("local", "yarn", "k8s://")

_STANDALONE = "spark://"
_CONNECT_SECONDS = 5.0
# Starting an executor takes a few seconds, on a busy machine many times that.
_EXECUTOR_SECONDS = 60.0
_POLL_SECONDS = 0.2

# The default, fork, copies the JVM's page tables.
_VFORK = "-Djdk.lang.Process.launchMechanism=VFORK"

# Only the C1 compiler: C2 would use the cores for minutes, mostly for code that runs once per batch. Without C2 the JVM
# reserves 48 MB for compiled code, which a job fills within two minutes: it then drops half of its code, and compiling
# that again holds up batches for a second or more. Reserved memory is used only as it fills.
QUICK_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")

# What the JVM logs, unless the user's own Spark configuration says it.
_LOGGING = Path(__file__).with_name("log4j2.properties")

# What the shells that start the JVM read first: bash takes it from this variable.
_LAUNCH = Path(__file__).with_name("spark_launch.bash")
_READ_BY_SHELLS = "BASH_ENV"

# The folder that executors import this package from.
_CODE = Path(__file__).resolve().parents[2]

# The folder that executors unpack the archive of this code to.
_UNPACKED = "nightjar-code"

# Between driver and executors, and for shuffled rows; a master without it is spoken to as it can.
_ENCRYPTED = {"spark.network.crypto.enabled": "true", "spark.network.crypto.authEngineVersion": "2"}

# Referenced by name so that the driver does not import it; see that module.
_PYTHON_DAEMON = "nightjar.streaming.buckets.python_daemon"


def common_settings(config: SparkConfig, files: AnyPath, java_options: Iterable[str] = ()) -> dict[str, str]:
    """The settings of all our Spark programs; the caller adds its own and then `config.conf`.

    files: where Spark keeps checkpoints and tables. java_options: the program's own for the driver's JVM.
    """
    master, paths = config.master, [str(jar) for jar in config.jars]
    access = access_of(files)
    store_options = () if access is None else access.java_options()
    java_options = [_VFORK, *_logging(), *java_options, *config.java_options, *store_options]
    settings = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options),
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": _PYTHON_DAEMON,
        # On the class path from the start, because Hadoop looks for its file systems before `spark.jars` are loaded.
        "spark.driver.extraClassPath": os.pathsep.join(paths),
    }
    if access is not None:
        settings |= access.hadoop_settings()
        if access.checkpoint_manager is not None:
            settings["spark.sql.streaming.checkpointFileManagerClass"] = access.checkpoint_manager
    if any(_LOCAL_FILES_JAR in path for path in paths):
        settings["spark.hadoop.fs.file.impl"] = _LOCAL_FILES
    if master.startswith(_SECRET_MADE_BY_SPARK):
        # Every user of the machine can connect to Spark's ports; clients without the run's secret are rejected.
        settings["spark.authenticate"] = "true"
    if master.startswith("local"):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        settings |= _ENCRYPTED | _executors_code(config.code, paths)
        settings["spark.executor.extraJavaOptions"] = " ".join(f'"{option}"' for option in [_VFORK, *store_options])
    return settings


def _logging() -> list[str]:
    """The option that names what the JVM logs; none where the user's Spark configuration has a file of its own."""
    own = os.environ.get("SPARK_CONF_DIR")
    return [] if own and (Path(own) / _LOGGING.name).exists() else [f"-Dlog4j2.configurationFile={_LOGGING}"]


def _executors_code(archive: Path | None, jars: list[str]) -> dict[str, str]:
    """Where executors find the jars and this code."""
    if archive is None:
        found = [str(_CODE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "spark.executor.extraClassPath": os.pathsep.join(jars),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(found),
        }
    # the archive is unpacked in the working directory of an executor, from which its Python processes are started
    return {
        "spark.jars": ",".join(jars),
        "spark.archives": f"{archive}#{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": _UNPACKED,
    }


def started(settings: Mapping[str, str], files: AnyPath, name: str, error: type[NightjarError]) -> SparkSession:
    """Start a session with these settings, or return the one already running. files: as in `common_settings`.

    Raises `error` if Java cannot start it, or if a cluster's master does not respond or provides no executor.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    master = settings["spark.master"]
    _refuse_open(settings, error)
    _refuse_silent(master, error)
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    # For the small JVM that only builds the command line of the real one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _launched_quietly():
            session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JJavaError) as failure:
        # The line of a Java exception that names it.
        lines = str(failure).strip().splitlines()
        why = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
        raise error(
            f"Spark could not be started ({why})",
            where=master,
            remedy="See its log above. It needs Java 17; a cluster's master and workers need the same release of Spark",
        ) from failure
    session.sparkContext.setLogLevel("ERROR")
    if (access := access_of(files)) is not None:
        hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  PySpark has no other way
        for key, value in access.hadoop_secrets().items():
            hadoop.set(key, value)
    if master.startswith(_STANDALONE):
        _await_executor(session, master, error)
    return session


@contextmanager
def _launched_quietly() -> Iterator[None]:
    """Keep the JVM's warning about a module that nothing here uses off standard error, for JVMs started inside the
    block; a user's own BASH_ENV stays, and with it the warning."""
    if _READ_BY_SHELLS in os.environ:
        yield
        return
    os.environ[_READ_BY_SHELLS] = str(_LAUNCH)
    try:
        yield
    finally:
        del os.environ[_READ_BY_SHELLS]


def has_executors(session: SparkSession) -> bool:
    """Whether tasks run outside the driver's JVM."""
    return not str(session.sparkContext.master).startswith("local")


def _refuse_open(settings: Mapping[str, str], error: type[NightjarError]) -> None:
    """Raise for a standalone cluster without a secret, unless somebody has decided so: who reaches it can run code."""
    if not settings["spark.master"].startswith(_STANDALONE) or "spark.authenticate" in settings:
        return
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", "/nonexistent")) / "conf")
    file = folder / "spark-defaults.conf"
    given = [line.split()[0] for line in file.read_text().splitlines() if line.split()] if file.is_file() else []
    if "spark.authenticate" not in given:
        raise error(
            "the cluster has no secret, so whoever reaches its ports can run code on it",
            where=settings["spark.master"],
            remedy="Put spark.authenticate true and spark.authenticate.secret … into spark-defaults.conf, readable by "
            "its user only, in the folder that SPARK_CONF_DIR names, for master, workers and driver; or set "
            '"spark.authenticate" = "false" in spark_conf',
        )
    if file.stat().st_mode & _OTHERS:
        _log.warning("others can read the cluster's secret", file=str(file), remedy="chmod 600")


def _refuse_silent(master: str, error: type[NightjarError]) -> None:
    """Raise if no master of a standalone cluster responds: Spark would retry for a minute and not report the reason."""
    if not master.startswith(_STANDALONE):
        return
    why = []
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
                return
        except (OSError, ValueError, OverflowError) as failure:
            why.append(f"{place}: {failure}")
    raise error(
        f"no Spark master responds ({'; '.join(why)})",
        where=master,
        remedy="Start it, or set spark_master to the spark://host:port in its log",
    )


def _await_executor(session: SparkSession, master: str, error: type[NightjarError]) -> None:
    """Wait for the first executor: without one a query would wait forever and only log that."""
    context = session.sparkContext._jsc.sc()  # noqa: SLF001  PySpark has no other way
    until = time.monotonic() + _EXECUTOR_SECONDS
    while not context.isStopped() and len(context.statusTracker().getExecutorInfos()) < 2:  # the driver is one
        if time.monotonic() > until:
            session.stop()
            break
        time.sleep(_POLL_SECONDS)
    if context.isStopped():
        raise error(
            "the cluster has provided no executor",
            where=master,
            remedy="See its page and the workers' logs: either no worker has enough free cores and memory "
            "(spark.executor.memory and spark.cores.max in spark_conf), or executors exit as they start",
        )
