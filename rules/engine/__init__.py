"""The engine: events in, alerts out. One evaluator for the stream and for the nightly backfill."""

from rules.engine.engine import Advance, Delta, Engine, Failure
from rules.engine.evaluation import Evaluated

__all__ = ["Advance", "Delta", "Engine", "Evaluated", "Failure"]
