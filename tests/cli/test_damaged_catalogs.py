"""A damaged catalog ends no command in a stack of calls: it works, or says in one line why not."""

import json
import os
import random
import shutil
import sqlite3
from contextlib import closing

import h5py
import numpy as np
import pytest

from sds.catalog.requests import IngestRequest, ReorganizeRequest
from sds.home import Home
from sds.mounts import filesystem_of
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
from sds.server.operations.service import Service
from tests.plots.evidence import calibration
from tests.redirected import settle
from tests.sizes import repeated

COMMANDS = (
    ["status"],
    ["report"],
    ["ingest"],
    ["advise"],
    ["advise", "CUBE"],
    ["advise", "CUBE:/d", "--select", "[:, :, 3]"],
    ["advise", "CUBE:/p", "--query", "e > 3"],
    ["what-if", "CUBE:/d", "--select", "[:, :, 3]", "--order", "2,0,1"],
    ["what-if", "CUBE:/d", "--order", "2,0,1", "--tiles", "2,2,2"],
    ["explain", "CUBE:/d", "[:, :, 3]"],
    ["simulate", "CUBE:/d", "[:, :, 3]"],
    ["plot", "predicted", "TMP"],
    ["plot", "coefficients", "TMP", "--text"],
    ["reorganize", "CUBE:/d", "--order", "1,2,0"],
    ["reorganize", "CUBE:/d", "--order", "1,2,0", "--tiles", "2,2,2"],
    ["reorganize", "CUBE:/p", "--sort", "e"],
    ["query", "CUBE:/p", "e > 3"],
    ["replicas"],
    ["replicas", "list", "--all"],
    ["replicas", "show", "1"],
    ["replicas", "verify"],
    ["replicas", "remove", "1"],
    ["trace", "show"],
    ["table", "show", "CUBE"],
    ["doctor", "CUBE:/d"],
    ["env"],
    ["calibrate", "TMP", "--refit"],
    ["calibrate", "TMP", "--show"],
)
STATES_OF_USERS_COMMANDS = {0, 1, 2, 3, 4, 6, 7}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A home whose catalog has something of everything, and the file that it is about."""
    place = tmp_path_factory.mktemp("sound")
    cube = place / "cube.h5"
    with h5py.File(cube, "w") as file:
        file["d"] = np.arange(512, dtype="f4").reshape(8, 8, 8)
        file["p/e"] = np.arange(100.0)
        file["p/x"] = np.arange(100)
    settle(cube)
    home = Home(place / "home")
    with Service.open(home) as service:
        service.reorganize(ReorganizeRequest(file=str(cube), dataset="/d", order=(2, 0, 1)))
        named = (NamedDataset(file=str(cube), dataset="/d"),)
        service.advise(AdviceRequest(datasets=named, selection="[:, :, 3]", n_reads=10))
        service.submit(IngestRequest())
        service._store.add_calibration(
            mount_point=str(filesystem_of(place).mount_point),
            device=place.stat().st_dev,
            calibration=calibration(),
        )
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home, cube


def truncate(database):
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2)


def cut_to_the_first_page(database):
    with database.open("r+b") as file:
        file.truncate(4096)


def zero(database, first_page):
    size = database.stat().st_size
    with database.open("r+b") as file:
        for at in range(first_page * 4096, size, 3 * 4096):
            file.seek(at)
            file.write(bytes(4096))


def scramble(database, seed):
    some = random.Random(seed)  # noqa: S311
    content = bytearray(database.read_bytes())
    for _ in range(len(content) // 512):
        content[some.randrange(100, len(content))] = some.randrange(256)
    database.write_bytes(content)


def run_sql(database, *statements):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def of_text(database):
    database.write_text("this is no database, whatever its name is\n" * 1000)


def directory(database):
    database.unlink()
    (database / "below").mkdir(parents=True)


def pipe(database):
    database.unlink()
    os.mkfifo(database)


def lost_tables(database):
    run_sql(database, "DROP TABLE replica", "DROP TABLE pattern", "DROP TABLE event")


def lost_columns(database):
    run_sql(
        database,
        "ALTER TABLE replica RENAME COLUMN reason TO why",
        "ALTER TABLE calibration RENAME COLUMN device TO machine",
    )


def nonsense_in_rows(database):
    run_sql(
        database,
        "UPDATE replica SET state = 'melted', layout = '{'",
        "UPDATE source_file SET identity = '[]'",
        "UPDATE calibration SET calibration = '{\"a\": 1}'",
        "UPDATE recommendation SET recommendation = 'null'",
        'UPDATE job SET request = \'{"kind": "melt"}\'',
    )


def other_types(database, value, declared):
    """Put a value into the columns of some declared types: SQLite takes it."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table' AND c.pk = 0 AND c.type IN (SELECT value FROM json_each(?))",
            (json.dumps(declared),),
        ).fetchall()
    tables = dict.fromkeys(table for table, _ in found if table != "alembic_version")
    run_sql(
        database,
        *(
            f"UPDATE OR REPLACE {table} SET "  # noqa: S608
            + ", ".join(f"{column} = {value}" for name, column in found if name == table)
            for table in tables
        ),
    )


def older(database):
    run_sql(database, "UPDATE alembic_version SET version_num = '0001'")


def no_revision(database):
    run_sql(database, "DELETE FROM alembic_version")


def lost_revision(database):
    run_sql(database, "DROP TABLE alembic_version")


DAMAGES = {
    "truncated": truncate,
    "one page": cut_to_the_first_page,
    "zeros": lambda database: database.write_bytes(bytes(database.stat().st_size)),
    "zeroed pages": lambda database: zero(database, 1),
    "zeroed leaves": lambda database: zero(database, 2),
    "text": of_text,
    "empty": lambda database: database.write_bytes(b""),
    "directory": directory,
    "pipe": pipe,
    "lost tables": lost_tables,
    "lost columns": lost_columns,
    "nonsense in rows": nonsense_in_rows,
    "text for numbers": lambda database: other_types(
        database, "'melted'", ("INTEGER", "BIGINT", "FLOAT", "BOOLEAN")
    ),
    "bytes for text": lambda database: other_types(database, "x'00ff'", ("TEXT",)),
    "numbers for text": lambda database: other_types(database, "7", ("TEXT",)),
    "text for bytes": lambda database: other_types(database, "'melted'", ("BLOB",)),
    "older": older,
    "no revision": no_revision,
    "lost revision": lost_revision,
} | {f"scrambled {seed}": lambda database, seed=seed: scramble(database, seed) for seed in range(6)}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_command_ends_in_words(sds, home, sound, tmp_path, damage):
    found, cube = sound
    # In `make test` each damage meets a third of the commands, and each command a third of them.
    step = repeated(3, 1)
    for words in COMMANDS[list(DAMAGES).index(damage) % step :: step]:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(found.root, home)
        DAMAGES[damage](home / "sds.db")
        given = [w.replace("CUBE", str(cube)).replace("TMP", str(tmp_path)) for w in words]
        result = sds(*given)
        assert result.code in STATES_OF_USERS_COMMANDS, (words, result)
        assert "Traceback" not in result.err, words
        errors = [line for line in result.err.splitlines() if line.startswith("sds: error: ")]
        assert len(errors) == (result.code != 0 and words[0] != "doctor"), (words, result)
        if errors and "catalog" in errors[0]:
            assert result.code == 1, (words, result)
