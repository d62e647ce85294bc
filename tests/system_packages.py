"""What tests need of Debian packages: programs, and headers of libraries."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hdf5_builds import cache_directory

PACKAGES = {
    "csh": "tcsh",
    "fish": "fish",
    "fusermount3": "fuse3",
    "luac5.3": "lua5.3",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.erofs": "erofs-utils",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mksquashfs": "squashfs-tools",
    "pkg-config": "pkg-config",
    "sh": "dash",
    "sshfs": "sshfs",
    "systemd-analyze": "systemd",
    "/lib/ld-linux.so.2": "libc6-i386",
    "/usr/include/fuse3/fuse.h": "libfuse3-dev",
    "/usr/lib/openssh/sftp-server": "openssh-sftp-server",
    "/usr/lib/python3/dist-packages/h5py/__init__.py": "python3-h5py",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}


def find_program(name):
    """Return the path of a program or header, having installed its package where that is allowed.

    Where it is not, the test is left out and says so; on CI (CI=true) leaving out is a failure.
    """
    found = _find(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install(PACKAGES[name])
        found = _find(name)
    if found is None:
        left_out = f"left out: {name} is missing; apt-get install {PACKAGES[name]}"
        if os.environ.get("CI") == "true":
            pytest.fail(left_out)
        pytest.skip(left_out)
    return found


def _install(package):
    """Install a Debian package; one process at a time, since apt-get does not wait for others."""
    install = ["apt-get", "install", "-y", "-q", package]
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "apt-get.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run(install, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
            subprocess.run(install, capture_output=True, check=False)


def _find(name):
    return name if Path(name).is_absolute() and Path(name).is_file() else shutil.which(name)
