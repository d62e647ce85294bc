"""What the connector writes into the spool."""

import os
import signal
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from sds.trace import expand, read_spool
from tests.under_connector import connector_environment, run_python
from tests.waiting import wait_until

N = 20


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "home"
    (path / "spool").mkdir(parents=True)
    return path


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["entry/cube"] = np.arange(N * N * N, dtype="f4").reshape(N, N, N)
        file.create_dataset("chunked", data=np.arange(100), chunks=(10,), compression="gzip")
        file["text"] = "scalar"
    return path


def spools(home):
    return [read_spool(path) for path in sorted((home / "spool").iterdir())]


def n_reads(home):
    return sum(int(spool.records.n_reads.sum()) for spool in spools(home))


def test_a_loop_over_planes_is_one_record(home, source):
    program = """
        import sys, time, h5py
        begin_s = time.monotonic()
        with h5py.File(sys.argv[1]) as file:
            for k in range(20):
                file["entry/cube"][:, :, k]
        print(time.monotonic() - begin_s)
    """

    def is_written_once():
        """Run the program; the trace is written every five seconds, and a record begins anew."""
        for spool in (home / "spool").iterdir():
            spool.unlink()
        env = connector_environment(home)
        return float(run_python(program, source.name, env=env, cwd=source.parent).stdout) < 5

    wait_until(is_written_once, "20 reads take less than five seconds")
    (spool,) = spools(home)
    (dataset,) = spool.datasets
    assert dataset.file == str(source)  # opened by its relative name
    assert dataset.path == "/entry/cube"
    assert dataset.extent == (N, N, N)
    assert dataset.element_bytes == 4
    assert dataset.hdf5_version == "2.0.0"
    with h5py.File(source) as file:
        assert dataset.data_offset_bytes == file["entry/cube"].id.get_offset()
    status = source.stat()
    assert dataset.identity == (
        status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )  # fmt: skip
    records = spool.records
    assert records.n_reads.tolist() == [N]
    assert records.n_elements.tolist() == [N * N]
    assert expand(records, 0)[:, 2].tolist() == list(range(N))
    assert records.elapsed_min_ns[0] > 0
    assert spool.process.pid > 0
    assert spool.process.executable == os.path.realpath(sys.executable)
    assert (spool.process.rank, spool.process.n_ranks) == (-1, 1)


def test_every_kind_of_selection(home, source):
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            cube = file["entry/cube"]
            cube[()]
            cube[1:9:2, :, 3]
            cube[[1, 4, 5]]
            cube[cube[:, 0, 0] > 1e9]
            cube.id.read(h5py.h5s.create_simple((3,)), points(cube), np.empty(3, "f4"))
            file["text"][()]
            file["chunked"][5:7]
    """.replace(
        "import sys, h5py, numpy as np",
        """import sys, h5py, numpy as np
        def points(cube):
            space = cube.id.get_space()
            space.select_elements([(0, 1, 2), (3, 4, 5), (9, 9, 9)])
            return space""",
    )
    run_python(program, source, env=connector_environment(home))
    (spool,) = spools(home)
    paths = {dataset.id: dataset for dataset in spool.datasets}
    records = spool.records
    kinds = {"none": 0, "all": 1, "hyperslab": 2, "irregular": 3, "points": 4}
    found = {
        (paths[i].path, kind): (start[:rank].tolist(), count[:rank].tolist(), n)
        for i, kind, rank, start, count, n in zip(
            records.dataset_id.tolist(),
            records.selection_kind.tolist(),
            records.rank.tolist(),
            records.start,
            records.count,
            records.n_elements.tolist(),
            strict=True,
        )
    }
    cube = "/entry/cube"
    assert found[cube, kinds["all"]] == ([0, 0, 0], [N, N, N], N**3)
    assert found[cube, kinds["hyperslab"]][2] in (4 * N, N)
    assert found[cube, kinds["irregular"]] == ([1, 0, 0], [5, N, N], 3 * N * N)
    assert found[cube, kinds["points"]] == ([0, 1, 2], [10, 9, 8], 3)
    assert found["/text", kinds["all"]] == ([], [], 1)
    assert found["/chunked", kinds["hyperslab"]][0] == [5]
    (chunked,) = (d for d in spool.datasets if d.path == "/chunked")
    assert (chunked.chunk, chunked.n_filters, chunked.data_offset_bytes) == ((10,), 1, -1)


def test_what_follows_a_box_is_not_taken_for_one(home, source):
    # Boxes are told by their bounds and number of elements alone, from the second one on.
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            data = file["entry/cube"].id
            def read(select):
                space = data.get_space()
                select(space)
                n = space.get_select_npoints()
                data.read(h5py.h5s.create_simple((n,)), space, np.empty(n, "f4"))
            box = lambda space: space.select_hyperslab((1, 2, 3), (2, 3, 4))
            def moved(space):
                space.select_hyperslab((1, 2, 3), (2, 3, 4))
                space.offset_simple((5, 0, 0))
            def union(space):
                space.select_hyperslab((0, 0, 0), (1, 1, 1))
                space.select_hyperslab((1, 2, 3), (1, 1, 1), op=h5py.h5s.SELECT_OR)
            for select in (
                box, box, moved,
                lambda space: space.select_hyperslab((1, 2, 3), (2, 2, 4), (1, 2, 1)), box,
                lambda space: space.select_elements([(0, 0, 0), (0, 0, 2)]), box,
                union, box,
                lambda space: space.select_all(), box,
                lambda space: space.select_hyperslab((1, 2, 3), (1, 1, 1), block=(2, 3, 4)),
                lambda space: space.select_none(), box,
            ):
                read(select)
    """
    run_python(program, source, env=connector_environment(home))
    (spool,) = spools(home)
    records = spool.records
    found = sorted(
        (kind, start[:3].tolist(), stride[:3].tolist(), count[:3].tolist(), n, reads)
        for kind, start, stride, count, n, reads in zip(
            records.selection_kind.tolist(), records.start, records.stride, records.count,
            records.n_elements.tolist(), records.n_reads.tolist(), strict=True,
        )
    )  # fmt: skip
    none, everything, hyperslab, irregular, points = range(5)
    boxes = [record for record in found if record[0] == hyperslab and record[4] == 24]
    assert sum(record[5] for record in boxes) == 9
    assert {tuple(record[3]) for record in boxes} == {(2, 3, 4)}
    assert [record[1] for record in boxes if record[1] != [1, 2, 3]] == [[6, 2, 3]]
    others = [record[:5] for record in found if record not in boxes]
    assert (none, [0, 0, 0], [1, 1, 1], [0, 0, 0], 0) in others
    assert (everything, [0, 0, 0], [1, 1, 1], [N, N, N], N**3) in others
    assert (hyperslab, [1, 2, 3], [1, 2, 1], [2, 2, 4], 16) in others
    assert (irregular, [0, 0, 0], [1, 1, 1], [2, 3, 4], 2) in others
    assert (points, [0, 0, 0], [1, 1, 1], [1, 1, 3], 2) in others


def test_what_is_reached_by_reference_is_not_searched_for(home, tmp_path):
    # HDF5 finds its path by looking at one object of the file after the other: it reads them.
    path = tmp_path / "cells.h5"
    n = 10_000
    with h5py.File(path, "w", libver="latest") as file:
        group = file.create_group("cells")
        cells = [group.create_dataset(str(i), data=np.arange(8.0)) for i in range(n)]
        refs = np.array([cell.ref for cell in cells[:: n // 50]], h5py.ref_dtype)
        file.create_dataset("refs", data=refs, dtype=h5py.ref_dtype)
    assert path.stat().st_size > 1 << 20  # smaller files are searched, for a time
    program = """
        import sys, h5py
        def n_calls():
            with open("/proc/self/io") as io:
                return int(dict(line.split(":") for line in io)["syscr"])
        with h5py.File(sys.argv[1]) as file:
            cells = [file[ref] for ref in file["refs"][:]]
            begin = n_calls()
            for cell in cells:
                cell[2:5]
            read = n_calls()
            cells[-1].name
            print(read - begin, n_calls() - read)
    """
    found = run_python(program, path, env=connector_environment(home))
    n_of_reads, n_of_search = map(int, found.stdout.split())
    assert n_of_search > 20 * 50  # so one would be seen
    assert n_of_reads < 4 * 50
    (spool,) = spools(home)
    assert n_reads(home) == 51
    assert {dataset.path for dataset in spool.datasets} == {"", "/refs"}


def test_few_objects_reached_by_reference_are_found(home, source):
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            file[file["entry/cube"].ref][:, :, 3]
    """
    run_python(program, source, env=connector_environment(home))
    (spool,) = spools(home)
    assert [dataset.path for dataset in spool.datasets] == ["/entry/cube"]


def test_ranks_and_jobs_come_from_the_launcher(home, source):
    program = "import sys, h5py; h5py.File(sys.argv[1])['chunked'][:]"
    env = connector_environment(home, PMI_RANK=3, PMI_SIZE=8, SLURM_JOB_ID="4711", SLURM_PROCID="0")
    run_python(program, source, env=env)
    (spool,) = spools(home)
    process = spool.process
    assert (process.rank, process.n_ranks, process.job_id) == (3, 8, "4711")


@pytest.mark.parametrize(
    "variable", [{"SDS_DISABLE": "1"}, {"SDS_TRACE": "0"}, {"SDS_HOME": "/nowhere/at/all"}]
)
def test_no_trace_where_none_is_wanted(home, source, variable):
    program = "import sys, h5py; print(h5py.File(sys.argv[1])['chunked'][3])"
    result = run_python(program, source, env=connector_environment(home, **variable))
    assert (result.stdout, result.stderr) == ("3\n", "")
    assert list((home / "spool").iterdir()) == []


def test_a_file_named_disabled_turns_it_off(home, source):
    (home / "disabled").touch()
    run_python(
        "import sys, h5py; h5py.File(sys.argv[1])['chunked'][3]", source,
        env=connector_environment(home),
    )  # fmt: skip
    assert list((home / "spool").iterdir()) == []


def test_a_read_only_spool_is_no_error(home, source):
    (home / "spool").rmdir()
    (home / "spool").write_text("a file in its place")
    result = run_python(
        "import sys, h5py; print(h5py.File(sys.argv[1])['chunked'][3])", source,
        env=connector_environment(home),
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("3\n", "")


def test_replicas_in_the_home_are_not_traced(home, source):
    replicas = home / "replicas" / "x"
    replicas.mkdir(parents=True)
    replica = replicas / "cube.h5"
    replica.write_bytes(source.read_bytes())
    run_python(
        "import sys, h5py; h5py.File(sys.argv[1])['chunked'][3]", replica,
        env=connector_environment(home),
    )  # fmt: skip
    assert n_reads(home) == 0


def test_forked_children_write_their_own(home, source):
    program = """
        import multiprocessing, sys, h5py
        def read(k):
            with h5py.File(sys.argv[1]) as file:
                return float(file["entry/cube"][0, 0, k])
        with h5py.File(sys.argv[1]) as file:
            for k in range(7):
                file["entry/cube"][k]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(sum(pool.map(read, range(10))))
            pool.close()
            pool.join()
    """
    result = run_python(program, source, env=connector_environment(home))
    assert result.stdout == "45.0\n"
    found = spools(home)
    own = [s for s in found if (s.records.n_elements == N * N).any()]
    assert len(own) == 1
    assert int(own[0].records.n_reads.sum()) == 7
    # Pool workers end with os._exit: what they had not written yet is theirs to lose.
    assert n_reads(home) <= 17


def test_threads_are_told_apart(home, source):
    program = """
        import sys, threading, h5py
        together = threading.Barrier(4)
        def read(k):
            with h5py.File(sys.argv[1]) as file:
                together.wait()
                for i in range(20):
                    assert file["entry/cube"][i, 0, k] == i * 400 + k
        threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    run_python(program, source, env=connector_environment(home))
    (spool,) = spools(home)
    assert int(spool.records.n_reads.sum()) == 80
    assert len(set(spool.records.thread.tolist())) == 4


def test_what_was_written_before_a_kill_stays(home, source):
    program = textwrap.dedent("""
        import itertools, signal, sys, h5py
        signal.alarm(300)   # ends what hangs
        is_read = True
        while is_read:
            with h5py.File(sys.argv[1]) as file:
                for k in range(20):
                    file["entry/cube"][:, :, k]
            print("closed", flush=True)   # the trace is written once a second at most
            is_read = sys.stdin.readline() == "again\\n"
        file = h5py.File(sys.argv[1])
        for i in itertools.count():
            file["entry/cube"][0]
            if i == 100:
                print("reading", flush=True)
    """)

    def n_written():
        """Return how many reads of planes are in the trace."""
        found = [spool.records for spool in spools(home)]
        return sum(int(records.n_reads[records.n_elements == N * N].sum()) for records in found)

    with subprocess.Popen(
        [sys.executable, "-c", program, source], env=connector_environment(home),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip

        def say(line):
            running.stdin.write(f"{line}\n")
            running.stdin.flush()
            return running.stdout.readline()

        try:
            assert running.stdout.readline() == "closed\n"
            wait_until(
                lambda: say("again") == "closed\n" and n_written() >= 2 * N,
                lambda: f"{2 * N} reads, but {n_written()}, are written",
            )
            before = n_written()
            assert say("enough") == "reading\n"
        finally:
            running.send_signal(signal.SIGKILL)
    (spool,) = spools(home)
    assert n_written() >= before >= 2 * N
    assert spool.torn_bytes == 0


def test_all_three_wheels_are_traced(home, tmp_path):
    program = """
        import sys
        import h5py, netCDF4, numpy as np, tables
        with netCDF4.Dataset(sys.argv[1] + "/n.nc", "w") as file:
            file.createDimension("time", 50)
            file.createVariable("v", "f8", ("time",), contiguous=True)[:] = np.arange(50.0)
        with tables.open_file(sys.argv[1] + "/t.h5", "w") as file:
            file.create_array("/", "a", np.arange(9))
        with netCDF4.Dataset(sys.argv[1] + "/n.nc") as file:
            file["v"][3:8]
        with tables.open_file(sys.argv[1] + "/t.h5") as file:
            file.root.a[2:5]
        with h5py.File(sys.argv[1] + "/t.h5") as file:
            file["a"][4:6]
    """
    run_python(program, tmp_path, env=connector_environment(home))
    (spool,) = spools(home)
    assert {(d.path, d.hdf5_version) for d in spool.datasets} >= {
        ("/v", "2.2.0"), ("/a", "1.14.6"), ("/a", "2.0.0"),
    }  # fmt: skip


def test_very_many_strided_reads_stay_small(home, tmp_path):
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = np.zeros((50, 1000), dtype="u1")
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            data = file["rows"].id
            space, memory = data.get_space(), h5py.h5s.create_simple((1,))
            out = np.empty(1, "u1")
            for i in range(50):
                for j in range(1000):
                    space.select_hyperslab((i, j), (1, 1))
                    data.read(memory, space, out)
    """
    run_python(program, path, env=connector_environment(home))
    assert n_reads(home) == 50_000
    assert sum(file.stat().st_size for file in (home / "spool").iterdir()) < 10_000
