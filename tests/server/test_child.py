import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sds.errors import NotHdf5Error, ServerError
from sds.server.child import run_in_child
from tests.server import stages_for_tests as stages
from tests.waiting import PATIENCE_S, wait_until


def run(work, *args, progress=lambda *_: None, poll=lambda: None):
    return run_in_child(work, *args, callbacks={"progress": progress}, poll=poll)


def test_a_stage_returns_and_reports():
    shares = []
    assert run(stages.double, 21, progress=lambda share, what: shares.append((share, what))) == 42
    assert shares == [(1 / 3, "doubling"), (2 / 3, "doubling"), (1.0, "doubling")]


def test_known_errors_come_back_as_they_are():
    with pytest.raises(NotHdf5Error, match=r"/a\.h5 is no HDF5 file"):
        run(stages.fail, "known")


def test_unknown_errors_are_the_server_s(capfd):
    with pytest.raises(ServerError, match="RuntimeError"):
        run(stages.fail, "unknown")
    assert "a secret detail" in capfd.readouterr().err


@pytest.mark.parametrize(("work", "message"), [(stages.die, "SIGSEGV"), (stages.leave, "status 7")])
def test_a_child_that_dies_takes_only_itself(work, message):
    with pytest.raises(ServerError, match=message):
        run(work)


def test_a_callback_that_raises_lets_the_child_clean_up(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(*_):
        raise EnoughError

    with pytest.raises(EnoughError):
        run(stages.work_until_stopped, tmp_path / "note", progress=stop)
    assert (tmp_path / "note").read_text() == "cleaned up"


def test_a_poll_that_raises_kills_the_child_at_once(tmp_path):
    class EndError(Exception):
        pass

    def end():
        if (tmp_path / "pid").exists():
            raise EndError

    with pytest.raises(EndError):
        run(stages.hang, tmp_path / "pid", poll=end)
    assert not (tmp_path / "pid.after").exists()
    assert multiprocessing.active_children() == []


def test_the_child_dies_with_its_parent(tmp_path):
    program = (
        "from pathlib import Path\n"
        "from sds.server.child import run_in_child\n"
        "from tests.server import stages_for_tests as stages\n"
        "if __name__ == '__main__':\n"
        f"    run_in_child(stages.hang, Path({str(tmp_path / 'pid')!r}),\n"
        "        callbacks={'progress': print}, poll=lambda: None)\n"
    )
    (tmp_path / "parent.py").write_text(program)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.DEVNULL,
    )

    def child_of():
        assert parent.poll() is None
        return (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()

    child = int(wait_until(child_of, "the child hangs"))
    parent.send_signal(signal.SIGKILL)
    parent.wait(PATIENCE_S)
    wait_until(lambda: not _is_running(child), "the child is dead")
    assert not (tmp_path / "pid.after").exists()


def _is_running(pid):
    try:
        with Path(f"/proc/{pid}/stat").open() as stat:
            return stat.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False
