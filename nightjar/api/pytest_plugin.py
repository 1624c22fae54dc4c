"""Runs case files as tests where a team runs its others: pytest collects `*.case.yaml`, and has a fixture for the rest.

Nothing of nightjar is imported before a case is run, so that the plugin costs other test suites nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nightjar.api.simulation import Simulation

_NAMES = (".case.yaml", ".case.yml")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of one case."""
    return _CaseFile.from_parent(parent, path=file_path) if file_path.name.endswith(_NAMES) else None


class _CaseFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield _CaseItem.from_parent(self, name=self.path.name.partition(".case.")[0])


class _CaseItem(pytest.Item):
    def runtest(self) -> None:
        _checked(self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The error without a traceback through our code."""
        from nightjar.rules.errors import NightjarError

        ours = isinstance(excinfo.value, NightjarError)
        return str(excinfo.value) if ours else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """How pytest calls it."""
        return self.path, None, f"case: {self.name}"


@pytest.fixture
def nightjar_case() -> Callable[[Path | str], Simulation]:
    """A function that runs a case, from a path or a YAML text, and fails the test if it is not as expected."""
    return _checked


def _checked(case: Path | str) -> Simulation:
    from nightjar.api.simulation import simulate
    from nightjar.cases.checking import described

    __tracebackhide__ = True
    found = simulate(case)
    if not found.as_expected:
        pytest.fail("\n".join([f"{found.title}: not as expected", *described(found.differences)]), pytrace=False)
    return found
