"""nightjar: rules for fraud and anomaly detection, evaluated alike in a Spark stream and in a nightly batch.

The names in `__all__` are the public Python API (docs/reference/python.md). Each is imported when it is first used, so
that `import nightjar` costs next to nothing; everything else may change with any release.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nightjar.api.evaluation import Evaluation, check, evaluate
    from nightjar.api.lake import Lake, backtest
    from nightjar.api.simulation import Simulation, simulate
    from nightjar.rules.errors import NightjarError, Problem, RuleError

__all__ = [
    "Evaluation",
    "Lake",
    "NightjarError",
    "Problem",
    "RuleError",
    "Simulation",
    "backtest",
    "check",
    "evaluate",
    "simulate",
]

_HOMES = {
    "Evaluation": "nightjar.api.evaluation",
    "Lake": "nightjar.api.lake",
    "NightjarError": "nightjar.rules.errors",
    "Problem": "nightjar.rules.errors",
    "RuleError": "nightjar.rules.errors",
    "Simulation": "nightjar.api.simulation",
    "backtest": "nightjar.api.lake",
    "check": "nightjar.api.evaluation",
    "evaluate": "nightjar.api.evaluation",
    "simulate": "nightjar.api.simulation",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("nightjar")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
