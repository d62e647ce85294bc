"""A demonstration, small: every variant reads the same bytes, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S, wait_until


def has_ended(pid):
    """Return whether a process has ended; it stays in the list until its parent takes note."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_the_demonstration_compares_and_is_removed_by_the_lines_that_say_so(sds, tmp_path):
    work = tmp_path / "a directory"
    figure = tmp_path / "figure.png"
    result = sds(
        "demo", "--size", "24M", "--runs", "1", "--directory", work, "--output", figure, "--keep",
        "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = result.json
    use, stop, clean = (line.split(": ", 2)[2] for line in result.err.splitlines()[-3:])
    try:
        home = subprocess.run(
            ["sh", "-c", f'{use.strip()}; printf %s "$SDS_HOME"'],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        status = sds("status", "--json", SDS_HOME=home).json
        assert status["server"] == found["server"]
        assert found["server"].startswith("http://")
        # More may be planned while the programs prove these; it is not waited for.
        assert status["replicas"]["active"] >= 2
        kinds = [one["kind"] for one in sds("events", "--json", SDS_HOME=home).json["events"]]
        assert all(kinds.count(kind) >= 2 for kind in ("planned", "shadow", "active"))
    finally:
        subprocess.run(["sh", "-c", stop.strip()], check=True)
        pid = int(stop.split()[-1])
        wait_until(lambda: has_ended(pid), f"the end of the server, process {pid}")
        subprocess.run(["sh", "-c", clean.strip()], check=True)
    assert list(work.iterdir()) == []
    assert found["ok"] is True
    assert [(row["kind"], row["state"]) for row in found["rows"]] == [
        (kind, state) for state in ("cold", "warm") for kind in ("planes", "spectra", "series")
    ]
    for row in found["rows"]:
        assert row["equal"] is True
        assert row["cache"]
        for variant in ("original_s", "connector_s", "replica_s"):
            assert 0 < row[variant]["low"] <= row[variant]["median"] <= row[variant]["high"]
    assert {built["dataset"] for built in found["builds"]} == {"/image/cube", "/t2m"}
    assert {gain["kind"] for gain in found["gains"]} == {"planes", "spectra", "series"}
    assert all(len(program["sha256"]) == 64 for program in found["programs"])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_demonstration_that_is_ended_leaves_nothing(sds, tmp_path):
    work = tmp_path / "work"
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "sds.cli", "demo", "--size", "24M", "--directory", work],
            env=sds.environment, cwd=tmp_path, stdout=stream, stderr=stream,
        )  # fmt: skip
    wait_until(lambda: "program " in log.read_text(), log.read_text)
    (address,) = work.glob("*/home/server.json")
    pid = json.loads(address.read_text())["pid"]
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    wait_until(lambda: has_ended(pid), f"the end of the server, process {pid}")
    assert list(work.iterdir()) == []
