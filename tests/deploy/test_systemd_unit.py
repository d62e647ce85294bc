import os
import shutil
import subprocess
from pathlib import Path

UNIT = Path(__file__).parents[2] / "deploy" / "sds-server.service"


def verify(tool, unit, home):
    runtime = home / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return subprocess.run(
        [tool("systemd-analyze"), "verify", "--user", "--man=no", unit],
        env=os.environ | {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )


def install(home):
    """Lay the unit and the program where the unit's comment says."""
    program = home / ".local" / "bin" / "sds-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = home / "sds-server.service"
    shutil.copy(UNIT, unit)
    return unit


def test_systemd_has_nothing_to_say_against_the_unit(tool, tmp_path):
    result = verify(tool, install(tmp_path), tmp_path)
    assert (result.returncode, "sds-server.service" in result.stderr) == (0, False), result.stderr


def test_systemd_would_see_a_mistake(tool, tmp_path):
    unit = install(tmp_path)
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=perhaps"))
    assert "restart specifier" in verify(tool, unit, tmp_path).stderr
