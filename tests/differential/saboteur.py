"""Swaps, damages, deletes and re-creates tables and replicas while a program reads."""

import dataclasses
import os
import random
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

from sds.hdf5.identity import identity_of
from sds.redirect.tables import publish_table, table_path

# A file that changes within one tick of the file system's clock keeps its timestamps. Whatever is
# published is left alone for longer than a tick.
TICK_S = 0.011
PAUSE_S = 0.0005


class Saboteur:
    """A thread that is busy with one source's table and its replicas until left.

    done
        How often each thing was done.
    """

    def __init__(self, home, table, seed):
        self.done = {}
        self._home = home
        self._table = table
        self._random = random.Random(seed)  # noqa: S311 - repeatable mischief
        self._published_s = time.monotonic()
        self._stop = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run)
        self._pristine = {
            Path(candidate.path): Path(candidate.path).read_bytes()
            for dataset in table.datasets
            for candidate in dataset.candidates
        }

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self):
        actions = (
            self.publish_again, self.publish_again, self.swap, self.withdraw, self.cut_table,
            self.damage_table, self.delete_replica, self.cut_replica, self.damage_replica,
            self.replace_by_folder,
        )  # fmt: skip
        try:
            while not self._stop.wait(PAUSE_S * self._random.randrange(12)):
                action = self._random.choice(actions)
                action()
                self.done[action.__name__] = self.done.get(action.__name__, 0) + 1
        except Exception as error:  # noqa: BLE001 - raised where the thread is joined
            self._failure = error

    def _path(self):
        return table_path(self._home, self._table.source_path)

    def _victim(self):
        """Return a replica that was not published within this very tick."""
        left_s = self._published_s + TICK_S - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        return self._random.choice(list(self._pristine))

    def publish_again(self):
        """Heal every replica and publish the table."""
        self._publish(lambda candidates: candidates)

    def swap(self):
        """Publish other candidates than before."""
        self._publish(
            lambda candidates: tuple(
                self._random.sample(candidates, self._random.randint(1, len(candidates)))
            )
        )

    def _publish(self, choose):
        for path, content in self._pristine.items():
            if not path.is_file() or path.read_bytes() != content:
                fresh = path.with_suffix(".fresh")
                fresh.touch(mode=0o600)
                fresh.write_bytes(content)
                if path.is_dir():
                    path.rmdir()
                fresh.replace(path)
        datasets = tuple(
            dataclasses.replace(
                dataset,
                candidates=choose(
                    tuple(
                        dataclasses.replace(candidate, identity=identity_of(candidate.path))
                        for candidate in dataset.candidates
                    )
                ),
            )
            for dataset in self._table.datasets
        )
        publish_table(self._home, dataclasses.replace(self._table, datasets=datasets))
        self._published_s = time.monotonic()

    def withdraw(self):
        self._path().unlink(missing_ok=True)

    def cut_table(self):
        path = self._path()
        # The connector drops it where the program writes.
        with suppress(FileNotFoundError), path.open("r+b") as file:
            file.truncate(self._random.randrange(os.fstat(file.fileno()).st_size + 1))

    def damage_table(self):
        with suppress(FileNotFoundError):
            self._overwrite(self._path())

    def delete_replica(self):
        self._remove(self._victim())

    def cut_replica(self):
        path = self._victim()
        if path.is_file():
            with path.open("r+b") as file:
                file.truncate(self._random.randrange(path.stat().st_size + 1))

    def damage_replica(self):
        path = self._victim()
        if path.is_file():
            self._overwrite(path)

    def replace_by_folder(self):
        path = self._victim()
        self._remove(path)
        path.mkdir()

    def _overwrite(self, path):
        size = path.stat().st_size
        if size == 0:
            return
        with path.open("r+b", buffering=0) as file:
            for _ in range(self._random.randint(1, 4)):
                file.seek(self._random.randrange(size))
                file.write(self._random.randbytes(self._random.randint(1, 64)))

    @staticmethod
    def _remove(path):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
