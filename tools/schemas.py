"""Generates docs/schemas (`make docs`, `python -m tools.schemas`).

JSON Schemas of the records on nightjar's topics, and of the files that people write.
"""

import json
from pathlib import Path
from typing import Any

from nightjar.contracts.alerts import ALERT
from nightjar.contracts.clock import CLOCK
from nightjar.contracts.job_progress import report_schema
from nightjar.contracts.labels import LABEL
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.contracts.restrictions import RESTRICTION
from nightjar.contracts.rule_status import RULE_STATUS
from nightjar.contracts.run_manifest import RUN_MANIFEST
from nightjar.contracts.snoozes import SNOOZE
from tools.editor_schemas import editor_schemas

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas by the names of their files, without the ending."""
    kinds = (ALERT, RESTRICTION, LABEL, SNOOZE, LATE_EVENT, QUARANTINED, RULE_STATUS, CLOCK, RUN_MANIFEST)
    found = [kind.json_schema() for kind in kinds]
    return {schema["title"]: schema for schema in [*found, report_schema(), *editor_schemas()]}


def text(schema: dict[str, Any]) -> str:
    """A file's content."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / f"{name}.json").write_text(text(schema))
