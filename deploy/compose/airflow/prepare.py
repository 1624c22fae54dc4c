"""Prepares Airflow's database, users, roles and pool; what exists is kept, so that it can run at every start.

Each user's first password is in a file. Somebody who changes it in Airflow keeps the new one.
"""

import subprocess
import sys
from pathlib import Path

PASSWORDS = Path("/run/secrets/users")
# Looks on, and triggers these DAGs. Airflow takes who may trigger a DAG for somebody who may pause it, too.
ANALYST, TRIGGERED = "Analyst", ("nightly_backfill", "rule_backtest")
# User -> role. Op: also clears runs, approves rules, and edits connections, variables and pools; Viewer: looks on.
USERS = {"admin": "Admin", "operator": "Op", "analyst": ANALYST, "viewer": "Viewer"}
POOL = "nightjar_lake"


def main() -> None:
    """Make what is missing."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True)

    from airflow.models.pool import Pool
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
    from airflow.providers.fab.www.security import permissions

    Pool.create_or_update_pool(POOL, slots=1, description="The lake has one writer at a time.", include_deferred=False)
    with get_application_builder() as builder:
        manager = builder.sm
        triggers = [(permissions.ACTION_CAN_CREATE, permissions.RESOURCE_DAG_RUN)]
        triggers += [
            (permissions.ACTION_CAN_EDIT, permissions.resource_name(dag, permissions.RESOURCE_DAG)) for dag in TRIGGERED
        ]
        manager.bulk_sync_roles([{"role": ANALYST, "perms": manager.VIEWER_PERMISSIONS + triggers}])
        for name, role in USERS.items():
            if manager.find_user(name) is None:
                password = (PASSWORDS / name).read_text().strip()
                mail = f"{name}@nightjar.invalid"
                manager.add_user(name, name, "nightjar", mail, manager.find_role(role), password=password)


if __name__ == "__main__":
    main()
