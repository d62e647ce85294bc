"""Queries return the rows that NumPy selects, in the same order, whoever answers them."""

import os
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sds
from sds.engine import builtin_parameters
from sds.errors import (
    DatasetNotFoundError,
    FileMissingError,
    SdsValueError,
    UnsupportedError,
)
from sds.hdf5.columns import describe_open_table
from sds.hdf5.dataset import open_hdf5
from sds.hdf5.identity import identity_of
from sds.hdf5.row_numbers import PLACE, RowNumbers
from sds.home import Home
from sds.organizer import plan_sorting, reorganize
from sds.queries.conditions import compare, parse_condition
from sds.queries.query_cost import predict_query
from sds.queries.sorted_table import SortedTable
from sds.redirect.sorted_replicas import (
    SortedReplica,
    SortedReplicas,
    find_sorted,
    publish_sorted,
    sorted_path,
)
from tests.organizer.reorganizers.test_sorter import tables, write_table
from tests.organizer.sources import settle
from tests.replica_files import edited
from tests.sizes import repeated
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home")
    home.create()
    return home


def sort_and_publish(home, path, table="/table", key="key", **options):
    replica = reorganize(
        plan_sorting(path, table, key=key, home=home, **options), home=home, rebuild=True
    )
    publish_sorted(home, listed(replica))
    return replica


def listed(*replicas):
    return SortedReplicas(
        source_path=replicas[0].source_path,
        source_identity=replicas[0].source_identity,
        replicas=tuple(
            SortedReplica(
                path=replica.path,
                identity=replica.identity,
                table=replica.dataset_path,
                key=replica.sort.key,
                columns=replica.sort.columns,
            )
            for replica in replicas
        ),
    )


def selected(columns, condition, names=None):
    """Return what NumPy selects."""
    rows = parse_condition(condition).holds(columns)
    names = names or sorted(columns)
    return {name: columns[name][rows] for name in names}


def check_equal(found, expected):
    assert set(found.dtype.names) == set(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].tobytes() == np.ascontiguousarray(values).tobytes()


@st.composite
def questions(draw, key):
    """Draw a condition on the key whose numbers are often keys themselves."""

    def one():
        sign = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        of_table = key[draw(st.integers(0, len(key) - 1))].item()
        number = draw(
            st.one_of(
                st.just(of_table),
                st.integers(-3, 3),
                st.integers(-(2**66), 2**66),
                st.sampled_from([0.5, -0.0, float("inf"), float("nan"), 1e300]),
            )
        )
        return f"key {sign} {number if not isinstance(number, bool) else int(number)!r}"

    text = one()
    for _ in range(draw(st.integers(0, 3))):
        text = f"({text}) {draw(st.sampled_from(['and', 'or']))} {one()}"
    return text


@settings(
    max_examples=repeated(50, 150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), columns=tables(), form=st.sampled_from(["group", "compound"]))
def test_a_query_is_what_numpy_selects(tmp_path, home, *, data, columns, form):
    path = tmp_path / "source.h5"
    write_table(path, columns, form)
    sort_and_publish(home, path)
    condition = data.draw(questions(columns["key"]))
    names = data.draw(
        st.one_of(st.none(), st.lists(st.sampled_from(sorted(columns)), min_size=1, unique=True))
    )
    expected = selected(columns, condition, names)
    for strategy in ("scan", "sorted", "auto"):
        found = sds.query(path, condition, table="/table", columns=names, strategy=strategy)
        check_equal(found, expected)
    in_order = sds.query(path, condition, table="table", order="key", strategy="sorted")
    check_equal(
        sds.query(path, condition, table="table", order="key", strategy="scan"),
        {name: in_order[name] for name in in_order.dtype.names},
    )
    rows = parse_condition(condition).holds(columns)
    place = np.argsort(columns["key"][rows], kind="stable")
    check_equal(in_order, {name: values[rows][place] for name, values in columns.items()})


def particles(n_rows):
    rng = np.random.default_rng(2)
    return {
        "key": rng.exponential(size=n_rows).astype("<f4"),
        "x": rng.random(n_rows),
        "id": np.arange(n_rows),
    }


@pytest.mark.parametrize("form", ["group", "compound"])
def test_many_rows_in_many_windows_and_blocks(tmp_path, home, monkeypatch, form):
    monkeypatch.setattr("sds.queries.query.WINDOW_BYTES", 50_000)
    columns = particles(200_000)
    columns["key"][::1000] = np.nan
    write_table(tmp_path / "p.h5", columns, form)
    sort_and_publish(home, tmp_path / "p.h5")
    for condition in (
        "key > 3",
        "key <= 0.01 or key > 4 and key < 5",
        "key != 1",
        "key > 2 and x < 0.25",
        "x < 0.001 or key > 6",
        "x < 0.5 and (key > 5 or key < 0.001) and id >= 1000",
        "key < -1",
    ):
        expected = selected(columns, condition)
        for strategy in ("scan", "sorted"):
            found = sds.query(tmp_path / "p.h5", condition, table="table", strategy=strategy)
            check_equal(found, expected)


@pytest.fixture
def answered_by(monkeypatch):
    """Return a function that asks, and tells from which replicas rows were read."""

    def ask(path, condition, columns):
        read = []
        rows = SortedTable.rows
        with monkeypatch.context() as patched:
            patched.setattr(
                SortedTable,
                "rows",
                lambda self, *args: read.append(self.path) or rows(self, *args),
            )
            found = sds.query(path, condition, table="table")
        check_equal(found, selected(columns, condition))
        return read

    return ask


def test_the_replica_answers_where_it_is_predicted_faster_and_only_there(
    tmp_path, home, answered_by
):
    n_rows = 8_000_000
    columns = {
        "key": np.random.default_rng(3).exponential(size=n_rows),
        "id": np.zeros(n_rows, "i1"),
    }
    write_table(tmp_path / "p.h5", columns, "group")
    replica = sort_and_publish(home, tmp_path / "p.h5")
    assert answered_by(tmp_path / "p.h5", "key > 12", columns) == [replica.path]
    assert answered_by(tmp_path / "p.h5", "key > 0", columns) == []


@pytest.mark.parametrize("form", ["group", "compound"])
def test_what_undoing_filters_takes_decides_as_well(tmp_path, home, answered_by, form):
    path, columns = tmp_path / "p.h5", particles(1000)
    write_table(path, columns, form)
    replica = sort_and_publish(home, path)
    name = "sds_sort_decode_s_per_byte"
    for rates, served in (
        (np.zeros(3), False),
        (np.full(3, 1e-3), True),  # of seconds in all
        (np.full(3, -1.0), False),
        (np.full(2, 1e-3), False),  # not one for each column
        ("fast", False),
        (h5py.Empty("f8"), False),
        (np.zeros(3, "f4,f4"), False),
        (None, False),  # as replicas were built once
    ):
        with edited(replica.path) as (copy, _):
            del copy.attrs[name]
            if rates is not None:
                copy.attrs[name] = rates
        publish_sorted(home, listed(_with_identity(replica)))
        assert answered_by(path, "key > 1", columns) == [replica.path] * served


def test_predictions_weigh_matches_against_all_rows(tmp_path):
    write_table(tmp_path / "p.h5", particles(1000), "group")
    with open_hdf5(tmp_path / "p.h5") as handle:
        table = describe_open_table(handle, "table", like="key")
    table = replace(table, n_rows=10**8)

    def predicted(n_matching):
        return predict_query(
            table,
            ["key"],
            ["x", "id"],
            n_matching=n_matching,
            n_ranges=1,
            parameters=builtin_parameters(),
        )

    assert predicted(1000).is_sorted_faster
    assert not predicted(10**8).is_sorted_faster
    costs = [predicted(n).sorted_s[0] for n in (0, 10**4, 10**6, 10**8)]
    assert costs == sorted(costs)
    # A column more to look at costs a scan more than a sorted replica.
    assert predicted(10).scan_s[0] >= 10**8 * 4 * builtin_parameters().copy_s_per_byte


class TestAnythingUnexpectedIsScanned:
    """The replica is asked for by name, so that what does not come from it is an error."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "p.h5"
        write_table(path, particles(1000), "group")
        return path

    def check(self, path, *, served):
        expected = selected(particles(1000), "key > 1")
        check_equal(sds.query(path, "key > 1", table="table"), expected)
        if served:
            found = sds.query(path, "key > 1", table="table", strategy="sorted")
            check_equal(found, expected)
        else:
            with pytest.raises(UnsupportedError, match="no sorted replica"):
                sds.query(path, "key > 1", table="table", strategy="sorted")

    def test_no_replica(self, path):
        self.check(path, served=False)

    def test_all_as_it_should_be(self, path, home):
        sort_and_publish(home, path)
        self.check(path, served=True)

    def test_another_key(self, path, home):
        sort_and_publish(home, path, key="x")
        self.check(path, served=False)

    def test_a_column_that_it_does_not_hold(self, path, home):
        sort_and_publish(home, path, columns=["key", "x"])
        self.check(path, served=False)
        found = sds.query(path, "key > 1", table="table", columns=["x"], strategy="sorted")
        assert len(found)

    def test_a_source_touched_since(self, path, home):
        sort_and_publish(home, path)
        os.utime(path)
        self.check(path, served=False)

    def test_a_source_rewritten_with_its_times_put_back(self, path, home):
        sort_and_publish(home, path)
        before = path.stat()
        with path.open("r+b") as stream:
            stream.seek(0, os.SEEK_END)
            stream.write(b"\0")
        os.truncate(path, before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.check(path, served=False)  # the ctime tells

    def test_a_source_open_for_writing(self, path, home):
        sort_and_publish(home, path)
        with h5py.File(path, "r+") as handle:
            handle["table/key"][0] = 1000.0
            assert 1000.0 in sds.query(path, "key > 1", table="table")["key"]

    def test_the_replica_changed(self, path, home):
        replica = sort_and_publish(home, path)
        with replica.path.open("r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            stream.write(b"\0")
        self.check(path, served=False)

    def test_the_replica_is_gone(self, path, home):
        sort_and_publish(home, path).path.unlink()
        self.check(path, served=False)

    def test_others_may_write_the_replica(self, path, home):
        replica = sort_and_publish(home, path)
        replica.path.chmod(0o666)
        publish_sorted(home, listed(_with_identity(replica)))
        self.check(path, served=False)

    def test_others_may_write_the_list(self, path, home):
        sort_and_publish(home, path)
        sorted_path(home, path).chmod(0o622)
        self.check(path, served=False)

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": 2}', b"\xff\0"])
    def test_a_damaged_list(self, path, home, content):
        sort_and_publish(home, path)
        sorted_path(home, path).write_bytes(content)
        self.check(path, served=False)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda copy: copy.attrs.modify("sds_sort_nan_rows", np.int64(-1)),
            lambda copy: copy.attrs.modify("sds_sort_block_rows", np.int64(0)),
            lambda copy: copy.attrs.modify("sds_sort_key", "x"),
            lambda copy: copy.attrs.modify("sds_format", np.uint32(2)),
            lambda copy: copy.attrs.__delitem__(PLACE),
            lambda copy: copy.attrs.modify(PLACE, np.array([-1, 4])),
            lambda copy: copy.attrs.modify(PLACE, np.array([1 << 40, 4])),
            lambda copy: copy.attrs.modify(PLACE, np.array([0, 5])),
            lambda copy: copy.__delitem__("table/id"),
            lambda copy: os.pwrite(
                copy.id.get_vfd_handle(),
                np.full(1000, 10**6, np.uint32).tobytes(),
                RowNumbers(copy, 1000).offset_bytes,
            ),
        ],
    )
    def test_a_replica_that_does_not_fit(self, path, home, damage):
        replica = sort_and_publish(home, path)
        with edited(replica.path) as (copy, _):
            damage(copy)
        publish_sorted(home, listed(_with_identity(replica)))
        self.check(path, served=False)

    def test_a_source_with_another_name_has_the_list_of_its_own(self, path, home, tmp_path):
        sort_and_publish(home, path)
        link = tmp_path / "link.h5"
        link.symlink_to(path)
        self.check(link, served=True)

    @pytest.mark.parametrize("how", ["SDS_DISABLE=1", "SDS_REDIRECT=0", "file"])
    def test_switched_off(self, path, home, monkeypatch, how):
        sort_and_publish(home, path)
        if how == "file":
            home.disabled.touch()
        else:
            monkeypatch.setenv(*how.split("="))
        self.check(path, served=False)

    @pytest.mark.parametrize("how", ["SDS_DISABLE=0", "SDS_DISABLE=", "SDS_REDIRECT=1"])
    def test_what_does_not_switch_the_connector_off(self, path, home, monkeypatch, how):
        sort_and_publish(home, path)
        monkeypatch.setenv(*how.split("="))
        self.check(path, served=True)

    def test_a_list_without_replicas_is_removed(self, path, home):
        replica = sort_and_publish(home, path)
        assert len(find_sorted(home, replica.source_path, path.stat())) == 1
        one = listed(replica)
        publish_sorted(
            home,
            SortedReplicas(
                source_path=one.source_path, source_identity=one.source_identity, replicas=()
            ),
        )
        assert not sorted_path(home, path).exists()
        self.check(path, served=False)


def _with_identity(replica):
    return replace(replica, identity=identity_of(replica.path))


@pytest.mark.parametrize(
    ("condition", "options", "error", "said"),
    [
        ("key >", {}, SdsValueError, "'key >' is no condition"),
        ("mass > 1", {}, DatasetNotFoundError, "no dataset '/table/mass'"),
        ("key > 1 and mass > 1", {}, DatasetNotFoundError, "no column 'mass'"),
        ("key > 1", {"columns": ["mass"]}, DatasetNotFoundError, "no column 'mass'"),
        ("key > 1", {"columns": []}, SdsValueError, "no columns are named"),
        ("key > 1", {"columns": ["x", "x"]}, SdsValueError, "named twice"),
        ("key > 1", {"order": "size"}, SdsValueError, "order 'size' is unknown"),
        ("key > 1", {"strategy": "quick"}, SdsValueError, "no strategy is called 'quick'"),
        ("key > 1", {"table": "/nothing"}, DatasetNotFoundError, "no dataset '/nothing'"),
        ("tag > 1", {}, UnsupportedError, "'tag' is text"),
    ],
)
def test_questions_that_cannot_be_answered(tmp_path, condition, options, error, said):
    columns = particles(10) | {"tag": np.array([b"a"] * 10)}
    write_table(tmp_path / "p.h5", columns, "group")
    with pytest.raises(error, match=said):
        sds.query(tmp_path / "p.h5", condition, **{"table": "/table", **options})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileMissingError, match=r"nowhere\.h5"):
        sds.query(tmp_path / "nowhere.h5", "key > 1", table="t")


def test_a_table_without_rows_has_none_that_match(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as handle:
        handle["t/e"] = np.zeros(0, "f4")
        handle["c"] = np.zeros(0, [("e", "f8"), ("n", "i4")])
    assert sds.query(tmp_path / "p.h5", "e > 1", table="t").shape == (0,)
    found = sds.query(tmp_path / "p.h5", "e > 1", table="c", order="key")
    assert found.dtype == np.dtype([("e", "f8"), ("n", "i4")])
    assert found.shape == (0,)


def test_columns_of_variable_length_are_scanned(tmp_path, home):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as handle:
        handle["t/e"] = np.array([3.0, 1.0, 2.0])
        handle["t/note"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())
    settle(path)
    sort_and_publish(home, path, table="t", key="e")
    assert sds.query(path, "e > 1.5", table="t")["note"].tolist() == [b"a", b"c"]
    found = sds.query(path, "e > 1.5", table="t", columns=["e"], strategy="sorted")
    assert found["e"].tolist() == [3.0, 2.0]


@pytest.mark.parametrize("namesake", [True, False])
@pytest.mark.parametrize("form", ["group", "compound"])
def test_a_table_behind_an_external_link_is_the_one_that_h5py_reads(tmp_path, home, form, namesake):
    linking, linked = tmp_path / "a.h5", tmp_path / "b.h5"
    columns = particles(1000)
    write_table(linked, columns, form)
    with h5py.File(linking, "w") as handle:
        handle["l"] = h5py.ExternalLink("b.h5", "/table")
        if namesake:
            handle["table/key"] = np.full(1000, 9.0, "<f4")
            handle["table/x"] = handle["table/id"] = np.zeros(1000)
    settle(linking)
    expected = selected(columns, "key > 1")
    check_equal(sds.query(linking, "key > 1", table="/l", strategy="scan"), expected)
    sort_and_publish(home, linking, table="/l")
    for strategy in ("sorted", "auto"):
        check_equal(sds.query(linking, "key > 1", table="/l", strategy=strategy), expected)


@pytest.mark.parametrize("name", ["a/b", "."])
def test_members_that_no_dataset_can_be_called_as_are_scanned(tmp_path, home, name):
    path = tmp_path / "p.h5"
    rows = np.zeros(3, [("e", "f8"), (name, "i4")])
    rows["e"], rows[name] = [3.0, 1.0, 2.0], [7, 8, 9]
    with h5py.File(path, "w") as handle:
        handle["t"] = rows
    settle(path)
    for options in ({"key": name}, {"key": "e", "columns": ["e", name]}):
        with pytest.raises(UnsupportedError, match="a name that no dataset can have"):
            plan_sorting(path, "t", home=home, **options)
    sort_and_publish(home, path, table="t", key="e")
    assert sds.query(path, "e > 1.5", table="t")[name].tolist() == [7, 9]
    found = sds.query(path, "e > 1.5", table="t", columns=["e"], strategy="sorted")
    assert found["e"].tolist() == [3.0, 2.0]


def test_a_scan_keeps_to_its_memory(tmp_path):
    """Of 80 MB of rows, a scan that finds few holds little beside the result."""
    import tracemalloc

    columns = {"key": np.arange(5_000_000, dtype="f8"), "x": np.zeros(5_000_000)}
    write_table(tmp_path / "p.h5", columns, "group")
    del columns
    tracemalloc.start()
    found = sds.query(tmp_path / "p.h5", "key > 4999990", table="table", strategy="scan")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 9
    assert most < 24 << 20


def test_the_same_comparison_decides_in_scan_and_search():
    """As long as NumPy's comparison with a number is monotone, a search finds what a scan does."""
    keys = np.array([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2], np.int64)
    for number in (float(2**53), 2**53 + 1):
        held = compare(keys, "<=", number).tolist()
        assert held == sorted(held, reverse=True)


@pytest.mark.parametrize("form", ["group", "compound"])
def test_queries_and_reads_under_the_connector_are_as_without(tmp_path, home, form):
    """The connector opens the replica for sds.query as any file, and redirects no read to it."""
    write_table(tmp_path / "p.h5", particles(3000), form)
    sort_and_publish(home, tmp_path / "p.h5")
    program = """
        import hashlib, sys, h5py, sds

        file, form = sys.argv[1:]
        for strategy in ("scan", "sorted", "auto"):
            found = sds.query(file, "key > 2", table="/table", strategy=strategy)
            print(len(found), hashlib.sha256(found.tobytes()).hexdigest())
        with h5py.File(file) as handle:
            whole = handle["table/key"][...] if form == "group" else handle["table"]["key"]
            print(hashlib.sha256(whole.tobytes()).hexdigest())
    """
    log = tmp_path / "log"
    with_connector = connector_environment(home.root, SDS_DEBUG=log)
    without = native_environment(SDS_HOME=home.root)
    found = [
        run_python(program, tmp_path / "p.h5", form, env=environment).stdout
        for environment in (with_connector, without)
    ]
    assert found[0] == found[1]
    assert len(set(found[0].splitlines())) == 2  # all queries, and the column
    events = {event for event, *_ in decisions(log)}
    assert "no-table" in events
    assert not events & {"table", "served"}
