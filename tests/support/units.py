"""The units in deploy/systemd, and a program in the place of systemctl that does as they say."""

import re
from pathlib import Path

from nightjar.jvm.jars import PROJECT

UNITS = PROJECT / "deploy" / "systemd"
_INSTALLATION = "/srv/nightjar"
_SYSTEMCTL = """#!/bin/sh
cd {folder}
case $1 in
show) echo "{{ path={program} ; argv[]={command} }}" ;;
start) {start} ;;
stop) {stop} ;;
esac
"""


def command(unit: str, installation: Path) -> str:
    """ExecStart of the unit of this name, where nightjar is installed in that folder instead of /srv/nightjar."""
    (found,) = re.findall("^ExecStart=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)
    return str(found).replace(_INSTALLATION, str(installation))


def install_systemctl(folder: Path, start: str, stop: str, unit: str = "nightjar-job.service") -> Path:
    """Write the program: into the folder's `bin`, for the unit of an installation in that folder.

    start, stop: commands of a shell in that folder; `{command}` in them is the unit's.
    """
    given = command(unit, folder)
    text = _SYSTEMCTL.format(
        folder=folder,
        program=given.split()[0],
        command=given,
        start=start.format(command=given),
        stop=stop.format(command=given),
    )
    return executable(folder / "bin" / "systemctl", text)


def executable(path: Path, text: str) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
