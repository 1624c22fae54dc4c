"""Prepares Airflow's database, users and pool; what exists is kept, so that it can run at every start.

Each user's first password is in a file. Somebody who changes it in Airflow keeps the new one.
"""

import subprocess
import sys
from pathlib import Path

PASSWORDS = Path("/run/secrets/users")
# User -> role. Op: triggers, clears and pauses DAGs; User: triggers DAGs; Viewer: looks on.
USERS = {"admin": "Admin", "operator": "Op", "analyst": "User", "viewer": "Viewer"}
POOL = "nightjar_lake"


def main() -> None:
    """Make what is missing."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True)

    from airflow.models.pool import Pool
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

    Pool.create_or_update_pool(POOL, slots=1, description="The lake has one writer at a time.", include_deferred=False)
    with get_application_builder() as builder:
        manager = builder.sm
        for name, role in USERS.items():
            if manager.find_user(name) is None:
                password = (PASSWORDS / name).read_text().strip()
                mail = f"{name}@nightjar.invalid"
                manager.add_user(name, name, "nightjar", mail, manager.find_role(role), password=password)


if __name__ == "__main__":
    main()
