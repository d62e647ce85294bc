"""docs/how-to/xarray.md does what it says, with fewer days."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.under_connector import ROOT

TEXT = (ROOT / "docs" / "how-to" / "xarray.md").read_text()
BY_NAME = {"python": sys.executable, "sds": Path(sys.executable).with_name("sds")}
WITH_DASK = """
import dask.distributed
import xarray

if __name__ == "__main__":
    with (
        dask.distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        dask.distributed.Client(cluster),
        xarray.open_dataset("maps.nc", chunks={"time": -1, "lat": 60, "lon": 60}) as maps,
    ):
        print(f"{float(maps.t2m[:, :60, :120].mean()):.4f}")
"""


def programs():
    """Return the programs of the page, by their names."""
    found = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, flags=re.DOTALL))
    found["make_maps.py"] = found["make_maps.py"].replace("N_DAYS = 730", "N_DAYS = 400")
    return found


def commands():
    """Return the commands of the page that begin with sds or python."""
    return re.findall(r"^    \$ ((?:sds|python) .*)$", TEXT, flags=re.MULTILINE)


def run(command, directory):
    """Run a command of the page, by this Python and its sds."""
    words = [str(BY_NAME.get(word, word)) for word in shlex.split(command)]
    if words[1] == "try":
        words.insert(2, "--yes")
    return subprocess.run(
        words, cwd=directory, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_page_does_what_it_says(tmp_path, monkeypatch):
    for name, text in programs().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "with_dask.py").write_text(WITH_DASK)
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))
    outputs = {}
    for command in commands():
        done = run(command, tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        outputs[command] = done
    tried, served = (outputs[f"sds {word} -- python series.py"] for word in ("try", "run"))
    assert "--order 1,2,0" in tried.stderr
    series = [line for line in tried.stdout.splitlines() if line.endswith(" K")]
    assert len(series) == 3
    assert [line for line in served.stdout.splitlines() if line.endswith(" K")] == series
    (explained,) = [done.stdout for x, done in outputs.items() if x.startswith("sds explain")]
    assert "[0:400, 38, 13]" in explained
    assert run("sds ingest", tmp_path).returncode == 0
    report = json.loads(run("sds report maps.nc --json", tmp_path).stdout)
    by_replica = {
        each["description"]: sum(s["n"] for s in each["served"] if s["served_by"] > 0)
        for each in report["patterns"]
    }
    assert by_replica.pop("line along axis 0") == 3, report
    assert sum(by_replica.values()) > 0, report  # by the workers of dask
