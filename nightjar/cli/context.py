"""What commands share: the settings, the streams, configurations and consoles, each made when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nightjar.backfill.config import BackfillConfig
    from nightjar.configuration.settings import Settings
    from nightjar.rules.rulebook import RuleBook
    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole
    from nightjar.terminal.stages import Stages


class Context:
    """One run of a command. options: settings given on the command line; None is one that was not given."""

    def __init__(self, **options: Any) -> None:
        self._options = {name: value for name, value in options.items() if value is not None}

    @cached_property
    def settings(self) -> "Settings":
        """The settings, with the options of the command."""
        from nightjar.configuration.settings import load_settings

        return load_settings(**self._options)

    @cached_property
    def streams(self) -> "Mapping[str, Stream]":
        """The declared streams by name."""
        from nightjar.rules.streams import load_streams

        return load_streams(self.settings.streams)

    def stream(self, name: str) -> "Stream":
        """A stream.

        Raises:
            SettingsError: it is not declared.
        """
        from nightjar.rules.streams import stream_named

        return stream_named(name, self.streams)

    def recorded_stream(self, name: str) -> "Stream":
        """A stream that has a topic.

        Raises:
            SettingsError: it is not declared, or a union.
        """
        from nightjar.rules.streams import recorded_stream

        return recorded_stream(name, self.streams)

    def backfill(self, *, spark: bool = False) -> "BackfillConfig":
        """The configuration of backfills, and in it the lake's; see `backfill_config`."""
        from nightjar.configuration.backfill import backfill_config

        return backfill_config(self.settings, self.streams, spark=spark)

    @cached_property
    def published(self) -> "tuple[RuleBook, set[tuple[str, int]]]":
        """The published rules; see `nightjar.kafka.rule_topics.expected_book`."""
        from nightjar.kafka.rule_topics import expected_book

        return expected_book(self.settings, self.streams)

    @cached_property
    def console(self) -> "SafeConsole":
        """Standard output."""
        from nightjar.terminal.console import result_console

        return result_console()

    @cached_property
    def progress(self) -> "SafeConsole":
        """Standard error."""
        from nightjar.terminal.console import progress_console

        return progress_console()

    @cached_property
    def stages(self) -> "Stages":
        """Announces stages on standard error."""
        from nightjar.terminal.stages import Stages

        return Stages(self.progress)

    def log_as_configured(self) -> None:
        """Log at the level of the settings, as a service does; other commands log warnings."""
        from nightjar.configuration import logs

        logs.configure(self.settings.log_level)
