"""``make bench`` runs every benchmark."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import __main__ as runner

ROOT = Path(__file__).parents[2]


def test_every_module_and_package_that_prints_a_table_is_found():
    names = runner.benchmark_names()
    assert {"table1", "trace", "read_engine"} <= set(names)
    assert names == sorted(names)
    for name in names:
        place = runner.HERE / name
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists()
    # Modules that others import print nothing; of the packages one has a target of its own.
    assert not {"precedence", "measured_times", "fitted_machine", "conformance"} & set(names)
    left_out = {path.parent.name for path in runner.HERE.glob("*/__main__.py")} - set(names)
    assert left_out == {"conformance"}
    assert "\nconformance:" in (ROOT / "Makefile").read_text()


def test_a_module_and_a_package_are_run_by_name(tmp_path):
    """One after the other, each as if it were called by itself."""
    folder = tmp_path / "benchmarks"
    (folder / "package").mkdir(parents=True)
    (folder / "__main__.py").write_text(Path(runner.__file__).read_text())
    prints = 'import sys\nif __name__ == "__main__":\n    print(sys.argv, "{}")\n'
    (folder / "module.py").write_text(prints.format("a module"))
    (folder / "library.py").write_text("raise AssertionError\n")
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "__main__.py").write_text(prints.format("a package"))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "", "## module", "", "['module'] a module",
        "", "## package", "", "['package'] a package", "",
    ]  # fmt: skip
