"""Run every benchmark and print its table: ``python -m benchmarks [NAME ...]``."""

import runpy
import sys
from pathlib import Path

names = sys.argv[1:] or sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)
for name in names:
    print(f"\n## {name}\n", flush=True)
    sys.argv = [name]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
