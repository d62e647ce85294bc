"""Run every benchmark and print its table: ``python -m benchmarks [NAME ...]``."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent

# Compares outcomes of test suites, in hours: make conformance.
_NOT_OF_SPEED = {"conformance"}


def benchmark_names() -> list[str]:
    """Return the modules and packages of this folder that print a table when they are run."""
    modules = [path for path in HERE.glob("*.py") if not path.stem.startswith("_")]
    found = [path.stem for path in modules if '__name__ == "__main__"' in path.read_text()]
    found += [path.parent.name for path in HERE.glob("*/__main__.py")]
    return sorted(set(found) - _NOT_OF_SPEED)


def main() -> None:
    """Run the named benchmarks, or all."""
    for name in sys.argv[1:] or benchmark_names():
        print(f"\n## {name}\n", flush=True)
        sys.argv = [name]
        is_package = (HERE / name).is_dir()
        module = f"benchmarks.{name}.__main__" if is_package else f"benchmarks.{name}"
        runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
