"""Two processes that run the same program, one native and one under the connector."""

import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.differential.programs import FILE_NAME, Index, is_read, make_file, paths_of
from tests.differential.saboteur import Saboteur
from tests.redirected import redirect, settle
from tests.under_connector import ROOT, connector_environment, native_environment


class Worker:
    """A process that runs programs (worker.py)."""

    def __init__(self, env, log):
        self._env = env | {"PYTHONPATH": str(ROOT)}
        self._log = log
        self._process = self._spawn()

    def _spawn(self):
        with self._log.open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.differential.worker"],
                cwd=ROOT, env=self._env,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            )  # fmt: skip

    def start(self, path, program):
        pickle.dump((str(path), program), self._process.stdin)
        self._process.stdin.flush()

    def answers(self):
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - our own program
        except EOFError:
            self._process.communicate()
            code = self._process.returncode
            self._process = self._spawn()  # hypothesis looks for a smaller program
            message = f"the program ended with {code}: {self._log.read_text(errors='replace')}"
            raise AssertionError(message) from None

    def close(self):
        """End the process; returns what it printed besides its answers."""
        _, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self._process.returncode
        return self._log.read_text(errors="replace")


def reads_what_replicas_hold(program, steps, answers):
    """Return whether a program reads boxes of a dataset with a replica, before it writes."""
    held = {source.path for source in program.sources if source.replicas}
    for step, (kind, _) in zip(steps, answers, strict=True):
        if kind == "done":
            return False
        if kind == "bytes" and isinstance(step, Index) and step.path in held:
            return True
    return False


class Oracle:
    """Compares what programs read natively and under the connector.

    Parameters
    ----------
    directory
        Scratch; sources, replicas and traces lie in it.
    home
        SDS_HOME of the process under the connector.
    """

    def __init__(self, directory, home):
        self.home = home
        self.n_reads = 0
        self.n_errors = 0  # reads that native refuses
        self.n_by_links = 0  # reads of what has another path in its file
        self.n_writes = 0
        self.n_after_writes = 0  # reads of files that were written before
        self.n_others = 0  # reads that are neither
        self.eligible = set()  # files with undamaged replicas of what was read before any write
        self.of_segments = set()  # (file, number) of replicas
        self.sabotage = {}  # how often each kind was done
        self._directory = directory
        self._native = Worker(native_environment(), directory / "native.log")
        # The engine reads all that it can of the originals, however small.
        connected = connector_environment(home.root, SDS_ENGINE="always")
        self._connector = Worker(connected, directory / "connector.log")

    def check(self, program, *, sabotage_seed=None):
        """Run a program both ways, damaging tables and replicas meanwhile where a seed is given."""
        with tempfile.TemporaryDirectory(dir=self._directory) as folder:
            source, native = Path(folder, FILE_NAME), Path(folder, "native", FILE_NAME)
            make_file(source, program.sources)
            settle(source)
            native.parent.mkdir()
            shutil.copy2(source, native)
            replicas = [(s.path, *made) for s in program.sources for made in s.replicas]
            self.of_segments |= {
                (str(source), number)
                for number, (_, _, options) in enumerate(replicas, start=1)
                if "segments" in options
            }
            table = redirect(source, replicas, self.home) if replicas else None
            try:
                self._compare(source, native, program, table, sabotage_seed)
            finally:
                for dataset in table.datasets if table else ():
                    for candidate in dataset.candidates:
                        shutil.rmtree(Path(candidate.path).parent, ignore_errors=True)

    def _compare(self, source, native, program, table, sabotage_seed):
        self._native.start(native, program)
        expected = self._native.answers()
        if table is None or sabotage_seed is None:
            self._connector.start(source, program)
            found = self._connector.answers()
        else:
            with Saboteur(self.home, table, sabotage_seed) as saboteur:
                self._connector.start(source, program)
                found = self._connector.answers()
            for kind, n in saboteur.done.items():
                self.sabotage[kind] = self.sabotage.get(kind, 0) + n
        steps = program.steps
        self._count(program, steps, expected)
        if sabotage_seed is None and reads_what_replicas_hold(program, steps, expected):
            self.eligible.add(str(source))
        differences = [
            f"step {number} of {len(steps)}: {step}\n  native {e}\n  connector {f}"
            for number, (step, e, f) in enumerate(zip(steps, expected, found, strict=True))
            if e != f
        ]
        assert not differences, (
            f"{len(differences)} of {len(steps)} steps differ, first:\n{differences[0]}\n"
            f"of {program.sources}"
        )

    def _count(self, program, steps, answers):
        own_paths = {source.path for source in program.sources}
        is_written = False
        for step, (kind, _) in zip(steps, answers, strict=True):
            if is_read(step) and kind != "BeyondExtentError":
                self.n_reads += 1
                self.n_errors += kind != "bytes"
                is_by_link = not own_paths.issuperset(paths_of(step))
                self.n_by_links += is_by_link
                self.n_after_writes += is_written
                self.n_others += not is_by_link and not is_written
            elif kind == "done":
                self.n_writes += 1
                is_written = True

    def close(self):
        assert self._native.close() == ""
        assert self._connector.close() == "", "the connector printed"
