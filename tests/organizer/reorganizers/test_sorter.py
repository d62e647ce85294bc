"""Sorted replicas: rows in the order of their key, each once, whatever the types and the memory."""

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sds.errors import (
    ConfigurationError,
    DatasetNotFoundError,
    FormatError,
    FormatVersionError,
    LayoutError,
    SdsValueError,
    SourceChangedError,
    UnsupportedError,
    VerificationError,
)
from sds.geometry.replica_layout import SortOrder
from sds.hdf5.row_numbers import RowNumbers
from sds.hdf5.trailer import widest
from sds.home import Home
from sds.organizer import describe_replica, plan_sorting, reorganize, verify_replica
from sds.organizer.reorganizers.sort_verify import _WINDOW_ROWS, compare_with_table, whole_chunks
from sds.organizer.reorganizers.sorter import Sorter
from sds.organizer.replica_file.container import write_file_checksums
from tests.organizer.sources import settle
from tests.replica_files import block_ends, edited, trailer_of
from tests.sizes import repeated

KEYS = ["<i1", ">i2", "<i4", ">i8", "<u1", ">u8", "<f2", "<f4", ">f4", "<f8", ">f8", "?"]
OTHERS = ["<i2", ">f8", "S3", "V5", "<c8", ("<i2", (3,)), [("a", "<f4"), ("b", "u1")]]


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@st.composite
def tables(draw):
    n_rows = draw(st.integers(1, 60))
    dtype = draw(st.sampled_from(KEYS))
    few = draw(st.booleans())  # so that ties are many
    elements = st.sampled_from([0, 1]) if few else None
    key = draw(hnp.arrays(dtype, n_rows, elements=elements))
    if key.dtype.kind == "f" and draw(st.booleans()):
        special = draw(st.lists(st.sampled_from([np.nan, -0.0, 0.0, np.inf, -np.inf]), max_size=9))
        key[: len(special)] = special[:n_rows]
    others = draw(st.lists(st.sampled_from(OTHERS), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    columns = {"key": key}
    for index, kind in enumerate(others):
        wide = np.dtype([("x", kind)])
        columns[f"c{index}"] = np.frombuffer(rng.bytes(n_rows * wide.itemsize), wide)["x"]
    return columns


def write_table(path, columns, form, **options):
    with h5py.File(path, "w") as handle:
        if form == "group":
            for name, values in columns.items():
                # Of the bytes themselves: HDF5 has no own type for an array per row.
                row = np.dtype([("x", values.dtype, values.shape[1:])])
                file_type = h5py.h5t.py_create(row["x"], logical=True)
                space = h5py.h5s.create_simple((len(values),))
                group = handle.require_group("table")
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                if options.get("chunks"):
                    plist.set_chunk((min(7, len(values)),))
                    plist.set_deflate(1)
                made = h5py.h5d.create(group.id, name.encode(), file_type, space, dcpl=plist)
                made.write(
                    h5py.h5s.ALL,
                    h5py.h5s.ALL,
                    np.ascontiguousarray(values).view(f"V{row.itemsize}").reshape(-1),
                    mtype=file_type,
                )
        else:
            row = np.dtype(
                [(name, values.dtype, values.shape[1:]) for name, values in columns.items()],
                align=options.get("align", False),
            )
            rows = np.zeros(len(columns["key"]), row)
            for name, values in columns.items():
                rows[name] = values
            handle["table"] = rows
    settle(path)


def stable_order(key):
    numbers = np.flatnonzero(~np.isnan(key)) if key.dtype.kind == "f" else np.arange(len(key))
    rest = np.setdiff1d(np.arange(len(key)), numbers)
    by_key = sorted(numbers.tolist(), key=lambda row: key[row])
    return np.array(by_key + rest.tolist())


def check_sorted(replica, columns):
    order = stable_order(columns["key"])
    with h5py.File(replica.path) as copy:
        assert (RowNumbers(copy, len(order)).read(0, len(order)) == order).all()
        visited = []
        copy.visit(visited.append)
        assert set(visited) == {"table", *(f"table/{name}" for name in replica.sort.columns)}
        for name in replica.sort.columns:
            column = copy[f"table/{name}"]
            stored = np.empty(len(order), f"V{column.id.get_type().get_size()}")
            column.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=column.id.get_type())
            expected = np.ascontiguousarray(columns[name][order])
            assert stored.tobytes() == expected.tobytes()
        n_nan = int(copy.attrs["sds_sort_nan_rows"])
        block = int(copy.attrs["sds_sort_block_rows"])
        keys = copy["table/key"][: len(order) - n_nan]
        assert n_nan == (np.isnan(columns["key"]).sum() if keys.dtype.kind == "f" else 0)
        blocks = [keys[first : first + block] for first in range(0, len(keys), block)]
    for name, least_or_most in (("block_minima", np.min), ("block_maxima", np.max)):
        ends = block_ends(replica.path, name, widest(keys.dtype))
        assert ends.tolist() == [least_or_most(part) for part in blocks]


@settings(
    max_examples=repeated(40, 120), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    columns=tables(),
    form=st.sampled_from(["group", "compound"]),
    rows=st.tuples(st.integers(1, 70), st.integers(1, 9), st.integers(1, 30)),
    options=st.fixed_dictionaries({"chunks": st.booleans(), "align": st.booleans()}),
)
def test_a_sorted_replica_is_a_stable_sort_of_its_source(
    tmp_path, home, *, columns, form, rows, options
):
    path = tmp_path / "source.h5"
    write_table(path, columns, form, **options)
    plan = plan_sorting(path, "/table", key="key", home=home)
    sizes = zip(("run_rows", "merge_rows", "block_rows"), rows, strict=True)
    replica = reorganize(replace(plan, **dict(sizes)), home=home, rebuild=True)
    check_sorted(replica, columns)
    assert verify_replica(replica.path).ok


def particles(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "key": rng.exponential(size=n_rows).astype("<f4"),
        "x": rng.random(n_rows),
        "id": np.arange(n_rows),
    }


def test_more_rows_than_memory_holds_are_merged_within_the_memory_planned(tmp_path, home):
    columns = particles(200_000)
    write_table(tmp_path / "p.h5", columns, "group")
    plan = plan_sorting(tmp_path / "p.h5", "table", key="key", home=home, memory_bytes=7 << 20)
    assert plan.n_runs > 3
    assert plan.merge_rows >= 1024
    assert plan.memory_bytes <= 7 << 20
    assert plan.space_needed_bytes > 2 * plan.size_bytes  # the runs, too
    assert json.loads(json.dumps(plan.to_json()))["layout"]["sort"]["key"] == "key"
    tracemalloc.start()
    replica = reorganize(plan, home=home)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 4 MiB of the plan are HDF5's and the interpreter's, which is not counted here; one is margin.
    assert most_bytes <= plan.memory_bytes - (3 << 20)
    check_sorted(replica, columns)


def test_too_little_memory_is_refused_with_what_is_enough(tmp_path, home):
    write_table(tmp_path / "p.h5", particles(200_000), "group")
    with pytest.raises(ConfigurationError, match=r"allow at least \d+M") as refused:
        plan_sorting(tmp_path / "p.h5", "table", key="key", home=home, memory_bytes=5 << 20)
    enough = int(re.search(r"allow at least (\d+)M", str(refused.value))[1])
    plan_sorting(tmp_path / "p.h5", "table", key="key", home=home, memory_bytes=enough << 20)


@pytest.mark.parametrize("form", ["group", "compound"])
def test_what_undoing_filters_takes_is_kept(tmp_path, home, form):
    columns = particles(300_000)
    rows = np.rec.fromarrays(list(columns.values()), names=list(columns))
    with h5py.File(tmp_path / "source.h5", "w") as handle:
        if form == "compound":
            handle.create_dataset("table", data=rows, compression="gzip")
        else:
            for name, values in columns.items():
                filters = {"compression": "gzip"} if name == "x" else {}
                handle.create_dataset(f"table/{name}", data=values, **filters)
    settle(tmp_path / "source.h5")
    plan = plan_sorting(tmp_path / "source.h5", "/table", key="key", home=home)
    replica = reorganize(plan, home=home)
    with h5py.File(replica.path) as copy:
        rates = copy.attrs["sds_sort_decode_s_per_byte"]
    known = dict(zip(replica.sort.columns, rates, strict=True))
    assert {name for name, rate in known.items() if rate > 0} == (
        set(columns) if form == "compound" else {"x"}
    )
    assert max(rates) < 1e-6


def test_columns_are_chosen_by_name_and_the_key_is_always_there(tmp_path, home):
    write_table(tmp_path / "p.h5", particles(100), "compound")
    plan = plan_sorting(tmp_path / "p.h5", "table", key="key", columns=["id"], home=home)
    assert plan.sort == SortOrder(key="key", columns=("key", "id"))
    replica = reorganize(plan, home=home)
    assert replica.sort == plan.sort == describe_replica(replica.path).layout.sort
    with h5py.File(replica.path) as copy:
        assert sorted(copy["table"]) == ["id", "key"]
    other = plan_sorting(tmp_path / "p.h5", "table", key="id", home=home)
    assert other.output != plan.output
    reorganize(other, home=home)
    assert replica.path.exists()
    # The same again is found, not built.
    assert reorganize(plan, home=home).identity == replica.identity


def test_attributes_of_columns_come_along_and_what_cannot_is_named(tmp_path, home):
    path = tmp_path / "p.h5"
    write_table(path, particles(10), "group")
    with h5py.File(path, "r+") as handle:
        handle["table/x"].attrs["units"] = "m"
        handle["table/x"].attrs["where"] = handle["table"].ref
        handle["table/note"] = np.array(["a"] * 10, dtype=h5py.string_dtype())
    settle(path)
    replica = reorganize(plan_sorting(path, "table", key="key", home=home), home=home)
    with h5py.File(replica.path) as copy:
        assert copy["table/x"].attrs["units"] == "m"
    assert replica.left_out == (
        "column note: holds elements of variable length or references",
        "x: attribute where",
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"key": "mass"}, DatasetNotFoundError, "no dataset '/table/mass'"),
        ({"key": "tag"}, UnsupportedError, "'tag' .* is text"),
        ({"key": "note"}, UnsupportedError, "'note' .* is text"),
        ({"key": "wide"}, UnsupportedError, "of type float128"),
        ({"key": "key", "columns": ["note"]}, UnsupportedError, "leave it out of the columns"),
        ({"key": "key", "columns": ["x", "x"]}, SdsValueError, "named twice"),
        ({"key": "key", "columns": ["y"]}, DatasetNotFoundError, "no column 'y'"),
        ({"key": "empty"}, UnsupportedError, "has no rows"),
    ],
)
def test_what_cannot_be_sorted_is_refused_with_words(tmp_path, home, options, error, said):
    path = tmp_path / "p.h5"
    columns = particles(10) | {"tag": np.array([b"a"] * 10), "wide": np.zeros(10, "longdouble")}
    write_table(path, columns, "group")
    with h5py.File(path, "r+") as handle:
        handle["table/note"] = np.array(["a"] * 10, dtype=h5py.string_dtype())
        handle["table/empty"] = np.zeros(0)
    settle(path)
    with pytest.raises(error, match=said):
        plan_sorting(path, "table", home=home, **options)


def test_a_sort_order_without_its_key_does_not_exist():
    with pytest.raises(LayoutError, match="sorted by 'key' need that column"):
        SortOrder(key="key", columns=("x",))


def test_no_name_is_taken(tmp_path, home):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as handle:
        handle["sds_row_numbers"] = np.array([2, 1, 0])
    settle(path)
    replica = reorganize(plan_sorting(path, "/", key="sds_row_numbers", home=home), home=home)
    with h5py.File(replica.path) as copy:
        assert copy["sds_row_numbers"][...].tolist() == [0, 1, 2]
        assert RowNumbers(copy, 3).read(0, 3).tolist() == [2, 1, 0]


@pytest.mark.parametrize("n_rows", [1, 2, 500, 1024, 5000])
def test_nothing_that_is_written_later_takes_the_room_of_row_numbers(n_rows, tmp_path, home):
    """It belongs to nothing of the file: HDF5 must neither use it nor cut it off."""
    write_table(tmp_path / "p.h5", particles(n_rows), "group")
    replica = reorganize(plan_sorting(tmp_path / "p.h5", "table", key="key", home=home), home=home)
    with h5py.File(replica.path, "r+") as copy:
        numbers = RowNumbers(copy, n_rows)
        before = numbers.read(0, n_rows)
        for index in range(20):
            copy.attrs[f"more {index}"] = "x" * 100 * index
            copy[f"more {index}"] = np.zeros(index * 100)
    with h5py.File(replica.path) as copy:
        assert (RowNumbers(copy, n_rows).read(0, n_rows) == before).all()


def test_columns_at_the_root_are_a_table(tmp_path, home):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as handle:
        handle["e"] = np.array([3, 1, 2])
    settle(path)
    replica = reorganize(plan_sorting(path, "/", key="e", home=home), home=home)
    with h5py.File(replica.path) as copy:
        assert copy["e"][...].tolist() == [1, 2, 3]


def test_a_source_that_changed_is_not_sorted(tmp_path, home):
    path = tmp_path / "p.h5"
    write_table(path, particles(100), "group")
    plan = plan_sorting(path, "table", key="key", home=home)
    write_table(path, particles(100, seed=1), "group")
    with pytest.raises(SourceChangedError):
        reorganize(plan, home=home)
    assert not plan.output.exists()


@pytest.mark.parametrize("where", ["x", "key", "row numbers"])
@pytest.mark.parametrize("form", ["group", "compound"])
def test_rows_that_differ_are_never_published(tmp_path, home, form, where):
    """What is wrong before the checksums are taken, only the comparison with the source finds."""
    write_table(tmp_path / "p.h5", particles(1000), form)
    plan = plan_sorting(tmp_path / "p.h5", "table", key="key", home=home)
    replica = reorganize(plan, home=home)
    with edited(replica.path) as (copy, _):
        numbers = RowNumbers(copy, 1000)
        at, dtype = numbers.offset_bytes, np.dtype("<u4")
        if where != "row numbers":
            column = copy[f"table/{where}"]
            at, dtype = column.id.get_offset(), column.dtype
    # Two neighbours change places: all values are still there, and keys hardly out of order.
    with replica.path.open("r+b") as stream:
        stream.seek(at + 500 * dtype.itemsize)
        rows = np.frombuffer(stream.read(2 * dtype.itemsize), dtype)
        stream.seek(at + 500 * dtype.itemsize)
        stream.write(rows[::-1].tobytes())
    checks = rewrite_checksums(replica.path, plan)
    report = Sorter().verify(checks, plan)
    assert not report.ok
    assert report.problems


def rewrite_checksums(path, plan):
    """Make the checksums of a file those of what it holds."""
    arrays = trailer_of(path)
    with h5py.File(path, "r+"):
        pass  # cuts off what lies behind its end
    write_file_checksums(path, plan, arrays)
    assert verify_replica(path).ok
    return describe_replica(path)


@given(
    n_rows=st.integers(0, 10**6),
    chunk_rows=st.integers(0, 3 * 10**5),
    most_rows=st.integers(1, 10**6),
)
def test_what_is_compared_at_once_is_whole_chunks_where_the_memory_holds_them(
    n_rows, chunk_rows, most_rows
):
    spans = whole_chunks(n_rows, chunk_rows, most_rows)
    assert [first for first, _ in spans] == [
        sum(n for _, n in spans[:i]) for i in range(len(spans))
    ]
    assert sum(n for _, n in spans) == n_rows
    longest = max((n for _, n in spans), default=0)
    assert longest <= max(most_rows, _WINDOW_ROWS)
    if 0 < chunk_rows <= most_rows and chunk_rows * (_WINDOW_ROWS // chunk_rows or 1) <= most_rows:
        assert all(first % chunk_rows == 0 for first, _ in spans)
    assert len(spans) <= -(-n_rows // min(_WINDOW_ROWS, max(1, longest)))


@pytest.mark.parametrize("form", ["group", "compound"])
def test_a_chunk_that_no_cache_holds_is_fetched_once_to_compare_it(tmp_path, home, form):
    """What HDF5 decodes, it has fetched before: bytes that this process has read are counted."""
    path = tmp_path / "t.h5"
    rows = np.zeros(600_000, [("key", "<f8"), ("x", "<f8")])
    for name in rows.dtype.names:
        rows[name] = np.random.default_rng(2).random(len(rows))
    filtered = {"chunks": (300_000,), "compression": "gzip", "compression_opts": 1}
    with h5py.File(path, "w") as handle:
        if form == "compound":
            handle.create_dataset("table", data=rows, **filtered)
        else:
            for name in rows.dtype.names:
                handle.create_dataset(f"table/{name}", data=rows[name], **filtered)
    settle(path)
    plan = plan_sorting(path, "/table", key="key", home=home)
    replica = reorganize(plan, home=home)

    def read_bytes():
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(lines[0].removeprefix("rchar: "))

    before = read_bytes()
    assert compare_with_table(replica, plan).ok
    # Of the replica its checksums, its rows, and its keys once more.
    once = path.stat().st_size + 3 * replica.path.stat().st_size
    assert read_bytes() - before < once


@pytest.mark.parametrize("name", ["block_minima", "block_maxima"])
def test_wrong_minima_and_maxima_are_found(tmp_path, home, name):
    write_table(tmp_path / "p.h5", particles(1000), "group")
    plan = plan_sorting(tmp_path / "p.h5", "table", key="key", home=home)
    replica = reorganize(plan, home=home)
    with edited(replica.path) as (_, arrays):
        arrays[name][6] ^= 1
    report = Sorter().verify(rewrite_checksums(replica.path, plan), plan)
    assert any("minima and maxima" in problem for problem in report.problems)


def test_a_damaged_block_is_found_by_its_checksum(tmp_path, home):
    write_table(tmp_path / "p.h5", particles(1000), "group")
    replica = reorganize(plan_sorting(tmp_path / "p.h5", "table", key="key", home=home), home=home)
    with h5py.File(replica.path) as copy:
        at = copy["table/x"].id.get_offset() + 80
    with replica.path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))
    report = verify_replica(replica.path)
    assert report.damaged_blocks == (0,)


def test_another_process_is_told_what_a_newer_format_is(tmp_path, home):
    write_table(tmp_path / "p.h5", particles(10), "group")
    replica = reorganize(plan_sorting(tmp_path / "p.h5", "table", key="key", home=home), home=home)
    with edited(replica.path) as (copy, _):
        assert copy.attrs["sds_format"] == 6
        copy.attrs.modify("sds_format", np.uint32(7))
    with pytest.raises(FormatVersionError, match="format 7"):
        describe_replica(replica.path)
    with edited(replica.path) as (copy, _):
        copy.attrs.modify("sds_format", np.uint32(6))
        del copy["table/x"]
    with pytest.raises(FormatError, match="damaged"):
        describe_replica(replica.path)


def test_a_source_that_cannot_be_decoded_is_damaged(tmp_path, home):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as handle:
        handle.create_dataset("t/key", data=np.arange(1000), chunks=(100,), fletcher32=True)
        at = handle["t/key"].id.get_chunk_info(3).byte_offset
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"damage")
    settle(path)
    with pytest.raises(FormatError, match="copy the file again"):
        reorganize(plan_sorting(path, "t", key="key", home=home), home=home)
    assert not list(home.replicas.rglob("*.h5"))


def test_a_verification_that_fails_publishes_nothing(tmp_path, home):
    """What was written is damaged before its checksums are taken; the source stays as it is."""
    path = tmp_path / "p.h5"
    write_table(path, particles(1000), "group")
    plan = plan_sorting(path, "table", key="key", home=home)

    def damage(phase, done_bytes, total_bytes):
        if phase != "copy" or done_bytes < total_bytes:
            return
        (staged,) = plan.output.parent.glob("*.partial")
        with h5py.File(staged) as copy:
            at = copy["table/x"].id.get_offset()
        with staged.open("r+b") as stream:
            stream.seek(at)
            stream.write(b"\1\2\3")

    with pytest.raises(VerificationError, match=r"column 'x' .* does not hold the elements"):
        reorganize(plan, home=home, progress=damage)
    assert not list(home.replicas.rglob("*.h5*"))
