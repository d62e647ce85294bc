"""The demonstration, small: every variant reads the same bytes, and nothing is left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.waiting import wait_until


def has_ended(pid):
    """Return whether a process has ended; it stays in the list until its parent takes note."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_the_demonstration_compares_and_cleans_up(sds, tmp_path):
    figure = tmp_path / "figure.png"
    work = tmp_path / "work"
    result = sds(
        "demo", "--size", "24M", "--runs", "1", "--directory", work, "--output", figure, "--json"
    )  # fmt: skip
    assert result.code == 0, result.err
    found = result.json
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
    assert found["server"].startswith("http://")
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert list(work.iterdir()) == []


def test_what_is_kept_is_used_and_removed_by_the_lines_that_say_so(sds, tmp_path):
    work = tmp_path / "a directory"
    figure = tmp_path / "figure.png"
    result = sds(
        "demo", "--size", "24M", "--runs", "1", "--directory", work, "--output", figure, "--keep"
    )  # fmt: skip
    assert result.code == 0, result.err
    use, stop, clean = (line.split(": ", 2)[2] for line in result.err.splitlines()[-3:])
    try:
        home = subprocess.run(
            ["sh", "-c", f'{use.strip()}; printf %s "$SDS_HOME"'],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        status = sds("status", "--json", SDS_HOME=home).json
        assert status["server"] in result.err
        assert status["replicas"]["active"] == 2
    finally:
        subprocess.run(["sh", "-c", stop.strip()], check=True)
        pid = int(stop.split()[-1])
        wait_until(lambda: has_ended(pid), f"the end of the server, process {pid}")
        subprocess.run(["sh", "-c", clean.strip()], check=True)
    assert list(work.iterdir()) == []
