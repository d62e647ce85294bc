import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.errors import ConfigurationError, UnsupportedError
from sds.geometry.replica_layout import Filter
from sds.hdf5.dataset import describe_dataset
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize, verify_replica
from sds.organizer.replica_file.filters import format_filters, parse_filters, require_filters
from tests.organizer.sources import settle
from tests.under_connector import native_environment, run_python

SHUFFLE = Filter(code=2, name="shuffle")


def gzip(level):
    return Filter(code=1, name="gzip", options=(level,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", ()),
        ("gzip", (gzip(4),)),
        ("GZIP:9", (gzip(9),)),
        ("shuffle", (SHUFFLE,)),
        ("shuffle, gzip:1", (SHUFFLE, gzip(1))),
        ("gzip:1,shuffle", (SHUFFLE, gzip(1))),  # after compression it would do nothing
        ("zstd:7", (Filter(code=32015, name="zstd", options=(7,)),)),
        ("bitshuffle:zstd", (Filter(code=32008, name="bitshuffle", options=(0, 3, 3)),)),
    ],
)
def test_filters_are_named(text, expected):
    assert parse_filters(text, ()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in filters ''"),
        ("rle", "'rle' .* is no filter that SDS writes .*gzip"),
        ("gzip:10", "gzip:10: its levels are 0 to 9"),
        ("gzip:fast", "give one level"),
        ("gzip:1:2", "give one level"),
        ("shuffle:4", "shuffle has no options"),
        ("gzip,gzip:2", "twice"),
        ("gzip,zstd", "gzip and zstd both compress"),
        ("none,gzip", "'none'"),
        ("blosc:rar", "codecs are blosclz, lz4"),
        ("blosc2:snappy", "codecs are blosclz, lz4, lz4hc, zlib, zstd"),
        ("bitshuffle:lz4:3", "write bitshuffle:none"),
    ],
)
def test_filters_that_cannot_be_are_refused_by_name(text, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_filters(text, ())


def test_a_plugin_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with pytest.raises(ConfigurationError, match="pip install hdf5plugin"):
        parse_filters("zstd", ())


def test_a_filter_that_nobody_has_is_named():
    with pytest.raises(UnsupportedError, match=r"the replica is stored with filter 32999 \(odd\)"):
        require_filters([Filter(code=32999, name="odd")], "the replica", encode=True)


def test_filters_are_written_as_they_are_asked_for():
    for text in ("none", "gzip:4", "shuffle,zstd:3", "lzf", "bzip2:9"):
        assert format_filters(parse_filters(text, ())) == text


def test_filters_that_lose_information_are_not_taken_over():
    with pytest.raises(UnsupportedError, match=r"32013 \(zfp\) loses information"):
        parse_filters("source", [Filter(code=32013, name="zfp")])
    of_floats = Filter(code=6, name="scaleoffset", options=(0, 3))
    with pytest.raises(UnsupportedError, match="scaleoffset"):
        parse_filters("source", [of_floats])


def build_with_filters_of_the_source(directory, options):
    """Build a replica of a source with some filters, and check all that is known of them."""
    values = (np.arange(40 * 60 * 20) % 251).astype("<i4").reshape(40, 60, 20)
    source = directory / "a.h5"
    with h5py.File(source, "w") as handle:
        handle.create_dataset("d", data=values, chunks=(16, 16, 16), **options)
    settle(source)
    home = Home(directory / "home")
    plan = plan_reorganization(
        source, "/d", order=(2, 0, 1), home=home, filters="source", chunks=(20, 15, 17)
    )
    replica = reorganize(plan, home=home, rebuild=True)
    assert verify_replica(replica.path).ok
    original = [step.code for step in describe_dataset(source, "/d").filters]
    stored = [step.code for step in describe_dataset(replica.path, "/d").filters]
    assert stored == [*(code for code in original if code != 3), 3]
    with h5py.File(replica.path) as copy:
        assert np.array_equal(copy["d"][...], values.transpose(2, 0, 1))
    assert replica.decode_s_per_byte >= 0
    assert replica.source_chunk_shape == (16, 16, 16)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip", "compression_opts": 7, "shuffle": True},
        {"compression": "lzf", "fletcher32": True},
        {"compression": "szip", "compression_opts": ("nn", 8)},
        {"scaleoffset": 0},
    ],
    ids=str,
)
def test_the_filters_of_the_source_are_taken_over(options, tmp_path):
    build_with_filters_of_the_source(tmp_path, options)


def test_plugins_of_the_source_are_taken_over(tmp_path):
    """In a process of its own: Blosc's plugin fails where netCDF4 was imported before it."""
    program = """
        import sys
        import hdf5plugin
        from pathlib import Path
        from tests.organizer.replica_file.test_filters import build_with_filters_of_the_source
        for name in ("Bitshuffle", "Blosc", "Blosc2", "LZ4", "Zstd", "BZip2"):
            options = dict(getattr(hdf5plugin, name)())
            build_with_filters_of_the_source(Path(sys.argv[1]), options)
            print(name)
    """
    root = Path(__file__).parents[3]
    result = run_python(program, tmp_path, env=native_environment(), cwd=root)
    assert result.stdout.split() == ["Bitshuffle", "Blosc", "Blosc2", "LZ4", "Zstd", "BZip2"]


def test_a_new_process_loads_the_plugins_that_it_needs_to_compare(tmp_path):
    """Of the source and of the replica: a server compares again what another process built."""
    build = """
        import sys
        import h5py, hdf5plugin, numpy
        from pathlib import Path
        from sds.home import Home
        from sds.organizer import plan_reorganization, reorganize
        from tests.organizer.sources import make_cube
        place = Path(sys.argv[1])
        make_cube(place / "a.h5", chunks=(3, 3, 3), **hdf5plugin.LZ4())
        plan = plan_reorganization(
            place / "a.h5", "/cube", order=(2, 0, 1), home=Home(place / "home"), filters="zstd:3"
        )
        print(reorganize(plan, home=Home(place / "home")).path)
    """
    compare = """
        import sys
        from pathlib import Path
        from sds.home import Home
        from sds.organizer import describe_replica, load_organizer, plan_reorganization
        place, path = map(Path, sys.argv[1:])
        replica = describe_replica(path)
        plan = plan_reorganization(
            place / "a.h5",
            "/cube",
            order=replica.order,
            chunks=replica.chunk_shape,
            filters=replica.filters,
            home=Home(place / "home"),
        )
        assert "hdf5plugin" not in sys.modules
        report = load_organizer().verify(replica, plan)
        print(report.ok, report.problems)
    """
    root = Path(__file__).parents[3]
    path = run_python(build, tmp_path, env=native_environment(), cwd=root).stdout.strip()
    result = run_python(compare, tmp_path, path, env=native_environment(), cwd=root)
    assert result.stdout == "True ()\n"


def test_a_new_process_that_goes_on_with_a_build_loads_its_plugins(tmp_path):
    """HDF5 stores chunks as they are where an optional filter is missing."""
    begin = """
        import sys
        from pathlib import Path
        import sds.organizer.copy.stepwise_copy
        from sds.home import Home
        from sds.organizer import plan_reorganization, reorganize
        from tests.organizer.sources import make_cube
        sds.organizer.copy.stepwise_copy.CHECKPOINT_S = 0.0
        sds.organizer.copy.stepwise_copy._NOTES_SHARE = 0
        place = Path(sys.argv[1])
        if not (place / "a.h5").exists():
            make_cube(place / "a.h5", (64, 64, 64), "<i4")
        plan = plan_reorganization(
            place / "a.h5",
            "/cube",
            order=(2, 0, 1),
            chunks=(16, 16, 16),
            filters=sys.argv[2] if len(sys.argv) > 2 else FILTERS,
            memory_bytes=(4 << 20) + (1 << 18),
            home=Home(place / "home"),
        )
        done = []
        def progress(phase, n, total):
            done.append(n / total)
            if len(sys.argv) > 2 and n > total / 2:
                raise KeyboardInterrupt
        try:
            replica = reorganize(plan, home=Home(place / "home"), progress=progress)
        except KeyboardInterrupt:
            sys.exit()
        print(done[0], replica.path)
    """
    # The second time the filters are given as they were planned: naming them loads no plugin.
    planned = "[sds.hdf5.dataset.Filter(code=32015, name='zstd', options=(3,))]"
    root = Path(__file__).parents[3]
    run_python(begin, tmp_path, "zstd:3", env=native_environment(), cwd=root)
    assert len(list((tmp_path / "home").rglob("*.undo"))) == 1
    resume = begin.replace("FILTERS", planned).replace(
        "import sys\n", "import sys, sds.hdf5.dataset\n"
    )
    result = run_python(resume, tmp_path, env=native_environment(), cwd=root)
    first_done, path = result.stdout.split()
    assert float(first_done) > 0.4
    with h5py.File(path) as copy:
        masks = []
        copy["cube"].id.chunk_iter(lambda info: masks.append(info.filter_mask))
    assert masks == [0] * 64


def test_filters_that_turn_out_lossy_are_found_when_the_bytes_are_compared(tmp_path):
    """Of a plugin that SDS does not know it cannot know; comparing finds it."""
    from sds.errors import VerificationError

    with h5py.File(tmp_path / "a.h5", "w") as handle:
        handle["d"] = np.random.default_rng(1).random((30, 40))
    settle(tmp_path / "a.h5")
    home = Home(tmp_path / "home")
    rounds = Filter(code=6, name="scaleoffset", options=(0, 2))  # two decimals
    plan = plan_reorganization(
        tmp_path / "a.h5", "/d", order=(1, 0), home=home, filters=[rounds], chunks=(40, 30)
    )
    with pytest.raises(VerificationError, match=r"element \[.*is one of scaleoffset lossy"):
        reorganize(plan, home=home)
    assert not plan.output.exists()
