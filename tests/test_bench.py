"""The runner of benchmarks knows each of them, and goes on after a missed goal and after a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checks.bench import __main__ as runner
from checks.bench import plot

# Drawn from figures, or run by other benchmarks.
NOT_ALONE = {"__main__", "baseline", "plot"}


def test_each_benchmark_is_run() -> None:
    found = {path.stem for path in Path(runner.__file__).parent.glob("*.py") if "__main__" in path.read_text()}
    assert found - NOT_ALONE == set(runner.QUICK)


def test_what_fails_or_misses_its_goal_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    figure = json.dumps({"name": "size", "value": 6.0, "ratio": 3.0, "goal": 2.0, "met": False})
    programs = {
        "misses": f"print({figure!r}); raise SystemExit(1)",
        "fails": "raise RuntimeError",
        "works": "print('{}')",
    }
    (tmp_path / "checks" / "bench").mkdir(parents=True)
    (tmp_path / "checks" / "bench" / "__init__.py").touch()
    for name, program in programs.items():
        (tmp_path / "checks" / "bench" / f"{name}.py").write_text(program)
    monkeypatch.setattr(runner, "QUICK", dict.fromkeys(programs, ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["bench"])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    output, errors = capfd.readouterr()
    assert ended.value.code == 1
    assert output.splitlines() == [figure, "{}"]
    assert "missed: misses: size: 3.0, goal 2.0" in errors
    assert "failed: fails: exit code 1" in errors
    assert "3 benchmarks, 1 failed, 1 goals missed" in errors


def test_each_bar_of_the_chart_has_a_label_of_its_own() -> None:
    """Two runs of one measurement are told apart by their commands."""
    labels = [figure["label"] for figure in plot.figures()]
    assert len(labels) > 20
    assert len(set(labels)) == len(labels)
