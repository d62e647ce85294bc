"""What was measured of file systems reaches the programs that read."""

import os
from dataclasses import replace

import numpy as np
import pytest

from sds import _native
from sds.engine import (
    MeasuredFileSystem,
    builtin_parameters,
    load_measured,
    publish_measured,
    read_measured,
)
from sds.errors import FormatError, FormatVersionError, SdsValueError
from sds.home import Home

PARAMETERS = replace(
    builtin_parameters(), is_measured=True, call_s=1e-6, queue_depth=33, direct_min_bytes=12345
)


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.create()
    return made


def system(mount_point="/", kind=1, parameters=PARAMETERS):
    return MeasuredFileSystem(mount_point=mount_point, kind=kind, parameters=parameters)


def test_what_is_published_is_read_back(home):
    systems = (system(), system("/scr\udcff atch", 0x9123683E, replace(PARAMETERS, call_s=2e-6)))
    path = publish_measured(home, systems)
    assert read_measured(home) == systems
    assert path.stat().st_mode & 0o777 == 0o600
    publish_measured(home, systems[:1])
    assert read_measured(home) == systems[:1]


def test_nothing_was_measured_where_there_is_no_file(home):
    assert read_measured(home) == ()
    assert load_measured(home) is None


def test_a_damaged_file_is_named_and_counts_for_nothing(home):
    path = publish_measured(home, [system()])
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match="run sds calibrate"):
        read_measured(home)
    assert load_measured(home) is None


def test_a_newer_version_is_refused_politely(home):
    path = publish_measured(home, [system()])
    content = bytearray(path.read_bytes())
    content[8] = 2
    path.write_bytes(content)
    with pytest.raises(FormatVersionError):
        read_measured(home)
    assert load_measured(home) is None


@pytest.mark.parametrize("harm", ["writable by others", "a link", "a pipe", "a directory"])
def test_what_others_may_have_put_there_counts_for_nothing(home, tmp_path, harm):
    path = publish_measured(home, [system()])
    if harm == "writable by others":
        path.chmod(0o602)
    else:
        elsewhere = path.rename(tmp_path / "elsewhere")
        if harm == "a link":
            path.symlink_to(elsewhere)
        elif harm == "a pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    assert load_measured(home) is None


@pytest.mark.parametrize("mount_point", ["relative", "", "/" + "x" * 5000])
def test_no_mount_point_is_refused(home, mount_point):
    with pytest.raises(SdsValueError):
        publish_measured(home, [system(mount_point)])


def test_reads_go_by_what_was_measured(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(8 << 20))
    kind = _native.ReadFile(file).file_system_type
    out = bytearray(8 * 1000)

    def executor_with(call_s, mount_point="/", measured_kind=kind):
        costs = replace(PARAMETERS, call_s=call_s, vector_s=1.0, pick_s=1.0)
        encoded = _native.encode_measured([(mount_point, measured_kind, costs.native())])
        reader = _native.ReadFile(file, may_map=False, measured=_native.Measured(encoded))
        found = reader.read_runs(0, 8, (1000,), (64,), out, cache="warm")
        return found["executor"]

    assert executor_with(1e-12) == "pread"
    assert executor_with(1e-12, mount_point=str(tmp_path)) == "pread"
    assert executor_with(1e-12, mount_point="/elsewhere") == "sieve"
    assert executor_with(1e-12, measured_kind=kind + 1) == "sieve"


def test_every_figure_survives(home):
    names = [name for name, value in PARAMETERS.native().items() if isinstance(value, float)]
    numbers = dict(zip(names, np.linspace(1, 2, len(names)).tolist(), strict=True))
    changed = replace(PARAMETERS, **numbers)
    publish_measured(home, [system(parameters=changed)])
    assert read_measured(home)[0].parameters == changed
