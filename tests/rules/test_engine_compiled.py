"""Compiled kernels that are kept on disk are used as long as no kernel has changed."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from numba import config

from nightjar.rules.engine import compiled

SOURCE = """from nightjar.rules.engine.compiled import kernel
@kernel
def double(x):
    return 2 * x
"""


def loaded(file: Path) -> ModuleType:
    """The module, as a new process would have it, after a call of its kernel."""
    spec = importlib.util.spec_from_file_location("doubling", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.double(21) == 42
    return module


def test_what_is_kept_serves_until_any_kernel_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of other files, which Numba alone would not notice."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "doubling.py"
    file.write_text(SOURCE)
    assert loaded(file).double.stats.cache_misses
    assert loaded(file).double.stats.cache_hits
    monkeypatch.setattr(compiled, "sources", lambda: b"changed")
    assert not loaded(file).double.stats.cache_hits
    assert loaded(file).double.stats.cache_hits


def test_compilation_is_announced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a kernel is compiled, and not where it is kept on disk."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "doubling.py"
    file.write_text(SOURCE)
    notices: list[str] = []
    compiled.on_compiling(lambda: notices.append("first"))
    assert loaded(file).double(1.5) == 3.0
    assert notices == ["first"]
    compiled.on_compiling(lambda: notices.append("second"))
    assert loaded(file).double.stats.cache_hits
    assert notices == ["first"]


def test_every_file_with_a_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the codes that they contain, and no other."""
    monkeypatch.setattr(compiled.resources, "files", lambda _: tmp_path)
    (tmp_path / "engine").mkdir()
    inner, plain, codes = (tmp_path / name for name in ("engine/inner.py", "engine/plain.py", "functions.py"))
    inner.write_text(SOURCE)
    plain.write_text("ONE = 1\n")
    codes.write_text("TWO = 2\n")
    before = compiled.sources.__wrapped__()
    plain.write_text("ONE = 2\n")
    assert compiled.sources.__wrapped__() == before
    inner.write_text(SOURCE.replace("2 * x", "x + x"))
    changed = compiled.sources.__wrapped__()
    assert changed != before
    codes.write_text("TWO = 3\n")
    assert compiled.sources.__wrapped__() != changed
