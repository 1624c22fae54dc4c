"""How a stage's program ends."""

import pytest

from nightjar.airflow import backfill_stage
from nightjar.expectations.findings import VerdictError
from nightjar.rules.errors import NightjarError


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (OSError(28, "No space left on device"), 2, "error: OSError: [Errno 28] No space left on device"),
        (
            RuntimeError(
                "An error occurred while calling o12.save.\n: java.io.IOException: gone\n\tat java.io\n\tat x"
            ),
            2,
            "error: RuntimeError: An error occurred while calling o12.save. : java.io.IOException: gone",
        ),
        (ValueError("a\x1b[2K"), 2, "error: ValueError: a\\x1b[2K"),
        (MemoryError(), 2, "error: MemoryError: "),
        (SystemExit(0), 2, "error: SystemExit: 0"),
        (NightjarError("is away", where="Kafka", remedy="Wait"), 2, "error: Kafka: is away. Wait"),
        (VerdictError("does not hold", remedy="Look"), 3, "error: does not hold. Look"),
    ],
)
def test_only_a_verdict_ends_with_3_and_the_last_line_has_the_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, line: str
) -> None:
    """A crash ends with 2, whatever it was, so that it is tried again."""

    def fail() -> None:
        raise raised

    monkeypatch.setattr(backfill_stage, "load_settings", fail)
    with pytest.raises(SystemExit) as ended:
        backfill_stage.main("gate", run_id="r", day="2026-01-01")
    assert ended.value.code == code
    assert capsys.readouterr().err.splitlines()[-1] == line
