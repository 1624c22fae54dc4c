"""A Spark session that can be a job's and an archive's, for what plays both in one process."""

from pyspark.sql import SparkSession

from nightjar.configuration.job import job_config
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.lake import session as lake
from nightjar.rules.streams import load_streams
from nightjar.streaming.driver import session as streaming


def session_of(settings: Settings, name: str) -> SparkSession:
    """A session with the settings of the job and of the lake; PYSPARK_PYTHON names the workers' interpreter."""
    declared = load_streams()
    every = lake.spark_settings(lake_config(settings, declared))
    every |= streaming.spark_settings(job_config(settings, declared))
    builder = SparkSession.builder.appName(name)
    for setting, value in every.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
