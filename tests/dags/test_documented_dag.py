"""docs/how-to/add-a-dag.md: its example is a DAG."""

import re
import textwrap
from typing import Any

import pytest

from nightjar.airflow.submission import LAKE_POOL
from nightjar.jvm.jars import PROJECT
from tests.dags.conftest import Airflow

LOOK = """
from types import SimpleNamespace
from datetime import UTC, datetime
namespace = {{"__doc__": "", "__name__": "archive_often"}}
exec({source!r}, namespace)
dag = namespace["dag"]
(task,) = dag.tasks
run = SimpleNamespace(run_id="a-run", run_after=datetime(2026, 11, 21, 1, tzinfo=UTC), data_interval_end=None)
context = {{"dag_run": run, "params": dag.params.dump()}}
arguments = task.render_template(task.arguments, context, dag.get_template_env())
report({{"dag": dag.dag_id, "pool": task.pool, "arguments": arguments}})
"""


@pytest.mark.slow
def test_the_example_of_the_guide_is_a_dag(airflow: Airflow) -> None:
    """Airflow reads it, and its task asks for the stage."""
    text = (PROJECT / "docs" / "how-to" / "add-a-dag.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^    ```python\n(.*?)^    ```", text, re.DOTALL | re.MULTILINE)
    found: Any = airflow.run(LOOK.format(source=textwrap.dedent(block)))
    assert (found["dag"], found["pool"]) == ("archive_often", LAKE_POOL)
    assert found["arguments"][:3] == ["archive", "--run-id", "a-run"]
