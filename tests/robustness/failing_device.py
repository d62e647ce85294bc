"""Devices that fail where a test says: under a file system of user space, and under a disk's."""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from tests.page_cache import drop_from_page_cache
from tests.robustness.conftest import HERE, compile_c
from tests.waiting import PATIENCE_S, is_stopped, wait_until

KINDS = ("fuse", "disk")
_IMAGE_BYTES = 48 << 20


class FailingDevice:
    """A folder whose files can be read but for some of their bytes.

    Of the kind "fuse" they are read from a server in user space; of the kind "disk" from ext4, on
    an image that such a server holds: what a failing disk looks like, mappings included. Files are
    written first, then the device is put to use, read only.
    """

    def __init__(self, kind, server, folder, scratch):
        self.folder = folder
        self._kind = kind
        self._server = server
        self._stack = contextlib.ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        (scratch / "control").write_bytes(bytes(24))
        with (scratch / "control").open("r+b") as control:
            self._control = self._stack.enter_context(mmap.mmap(control.fileno(), 24))
        self._control_path = scratch / "control"
        if kind == "disk":
            self._images = scratch / "images"
            self._images.mkdir()
            self._image = self._images / "image"
            self._image.touch()
            os.truncate(self._image, _IMAGE_BYTES)
            _run("mkfs.ext4", "-q", "-F", self._image)
            _run("mount", "-o", "loop", self._image, folder)

    def put_to_use(self):
        """Let nothing be written any more; the page cache holds nothing."""
        if self._kind == "fuse":
            self._serve(self.folder)
            return
        _unmount(self.folder)
        self._serve(self._images)
        _run("mount", "-o", "ro,loop", self._image, self.folder)
        self._stack.callback(_unmount, self.folder)

    def fail(self, path, begin, end):
        """Fail to read these bytes of a file; whole blocks of 4 KiB."""
        place = begin
        if self._kind == "disk":
            wanted = path.read_bytes()[begin:end]
            with self._image.open("rb") as image, mmap.mmap(image.fileno(), 0, prot=1) as bytes_of:
                place = bytes_of.find(wanted)
            assert place >= 0, "the file lies in several places of the disk"
            self._remount()
        struct.pack_into("qq", self._control, 0, place, place + end - begin)

    def heal(self):
        struct.pack_into("qq", self._control, 0, 0, 0)

    @property
    def n_failed(self):
        """How many reads of the device have failed."""
        return struct.unpack_from("q", self._control, 16)[0]

    def hang(self):
        """Answer nothing any more, until `close` or for as long as anybody waits in these tests."""
        self.process.send_signal(signal.SIGSTOP)
        # A request that one of its threads still takes up could not even be killed.
        wait_until(lambda: is_stopped(self.process.pid), "the server stops")
        answer = threading.Timer(PATIENCE_S, self.process.send_signal, [signal.SIGCONT])
        answer.start()
        self._stack.callback(self.process.send_signal, signal.SIGCONT)
        self._stack.callback(answer.cancel)

    def close(self):
        if self._kind == "disk" and not os.path.ismount(self._images):
            _unmount(self.folder)
        self._stack.close()

    def _remount(self):
        """Empty the page cache of what was looked for."""
        _unmount(self.folder)
        drop_from_page_cache(self._image)
        _run("mount", "-o", "ro,loop", self._image, self.folder)

    def _serve(self, folder):
        server = subprocess.Popen([self._server, self._control_path, folder, "-f", "-o", "ro"])
        self.process = server
        self._stack.callback(_end, server)

        def is_serving():
            assert server.poll() is None, "the file system did not start"
            return os.path.ismount(folder)

        wait_until(is_serving, "the file system starts")
        self._stack.callback(_unmount, folder)


def build_server(target, tool):
    """Return the server's program; the test is left out where it cannot be had."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("left out: only root mounts, where there is /dev/fuse")
    header = tool("/usr/include/fuse3/fuse.h")
    for name in ("fusermount3", "mkfs.ext4"):
        tool(name)
    include = f"-I{Path(header).parent}"
    return compile_c(HERE / "failing_fs.c", target, include, "-D_FILE_OFFSET_BITS=64", "-lfuse3")


def _unmount(folder):
    """Take a file system away, once whoever still looks at it has been answered."""
    unmount = ("umount", folder)
    wait_until(
        lambda: subprocess.run(unmount, capture_output=True, check=False).returncode == 0,
        f"{folder} is busy",
    )


def _end(server):
    """Wait for a server whose file system was unmounted; one that is still mounted is killed."""
    try:
        server.wait(PATIENCE_S)
    finally:
        server.kill()
        server.wait()


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
