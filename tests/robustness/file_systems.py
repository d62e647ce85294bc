"""File systems on images, in memory and in user space, for tests that mount them."""

import contextlib
import os
import subprocess
from pathlib import Path

from tests.hdf5_builds import leave_out
from tests.system_packages import find_program

# Kind: what makes it, options of mounting it, size of its image. The journal of ext4 is committed
# by fsync, and not every five seconds.
WRITABLE = {
    "ext4": (("mkfs.ext4", "-q", "-F"), "loop,commit=86400", 64 << 20),
    "ext4, times in whole seconds": (("mkfs.ext4", "-q", "-F", "-I", "128"), "loop", 64 << 20),
    "ext4, times written lazily": (
        ("mkfs.ext4", "-q", "-F"),
        "loop,lazytime,commit=86400",
        64 << 20,
    ),
    "xfs": (("mkfs.xfs", "-q", "-f"), "loop", 320 << 20),
    "btrfs": (("mkfs.btrfs", "-q", "-f"), "loop", 128 << 20),
}


def run(*command, env=None):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Mounts:
    """What a test mounts; unmounted when it ends, the last first."""

    def __init__(self, scratch):
        self._scratch = scratch
        self._stack = contextlib.ExitStack()

    def mount(self, folder, *arguments):
        """Mount something in a folder; leaves the test out where this kernel cannot."""
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", *map(str, arguments), str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            leave_out(f"cannot mount here: {done.stderr.strip()}")
        self._stack.callback(self.unmount, folder)
        return folder

    def unmount(self, folder):
        if os.path.ismount(folder):
            run("umount", folder)

    def disk(self, kind, folder):
        """Mount an empty file system of a kind of WRITABLE; returns its image."""
        command, options, size_bytes = WRITABLE[kind]
        find_program(command[0])
        image = self._scratch / f"{folder.name}.image"
        with image.open("wb") as made:
            made.truncate(size_bytes)
        run(*command, image)
        self.mount(folder, "-o", options, image)
        return image

    def overlay(self, folder, upper):
        """Mount an overlay whose files lie in a folder of some other file system."""
        (upper / "upper").mkdir()
        (upper / "work").mkdir()
        (self._scratch / "lower").mkdir()
        layers = f"lowerdir={self._scratch / 'lower'},upperdir={upper}/upper,workdir={upper}/work"
        return self.mount(folder, "-t", "overlay", "overlay", "-o", layers)

    def sftp(self, folder, served):
        """Mount a folder by way of sshfs and a server of sftp, without a network."""
        for name in ("sshfs", "fusermount3"):
            find_program(name)
        server = find_program("/usr/lib/openssh/sftp-server")
        if not Path("/dev/fuse").exists():
            leave_out("there is no /dev/fuse")
        command = self._scratch / "sftp.sh"
        command.write_text(f"#!/bin/sh\nexec {server}\n")
        command.chmod(0o700)
        folder.mkdir()
        run("sshfs", f"nobody@nowhere:{served}", folder, "-o", f"ssh_command={command}")
        self._stack.callback(self.unmount, folder)
        return folder

    def close(self):
        self._stack.close()


def make_image(kind, image, folder):
    """Make an image of what a folder holds; images made of equal names and times look alike."""
    image.unlink(missing_ok=True)
    then = {**os.environ, "SOURCE_DATE_EPOCH": "1000000000", "E2FSPROGS_FAKE_TIME": "1000000000"}
    if kind == "squashfs":
        run(find_program("mksquashfs"), folder, image, "-noappend", "-quiet", env=then)
    elif kind == "erofs":
        run(find_program("mkfs.erofs"), "-T1000000000", image, folder, env=then)
    else:
        with image.open("wb") as made:
            made.truncate(64 << 20)
        fixed = ("-U", "12345678-1234-5678-1234-567812345678") if kind == "ext4, one UUID" else ()
        run(find_program("mkfs.ext4"), "-q", "-F", *fixed, "-d", folder, image, env=then)


IMAGES = ("squashfs", "erofs", "ext4", "ext4, one UUID")


def copy_as_power_is_lost(image, to):
    """Copy what a disk holds at this moment: what a machine finds that starts after it."""
    run("cp", "--sparse=always", image, to)
