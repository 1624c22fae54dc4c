"""The engine: events in, alerts out. One evaluator for the stream and for the nightly backfill."""

from nightjar.rules.engine.advance import NO_ROW, Advance, Delta, Failure, InputRows, Position
from nightjar.rules.engine.engine import Engine
from nightjar.rules.engine.evaluation import RuleResult

__all__ = ["NO_ROW", "Advance", "Delta", "Engine", "Failure", "InputRows", "Position", "RuleResult"]
