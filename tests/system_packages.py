"""Programs of Debian packages that tests need."""

import os
import shutil
import subprocess

import pytest

PACKAGES = {
    "csh": "tcsh",
    "fish": "fish",
    "luac5.3": "lua5.3",
    "sh": "dash",
    "systemd-analyze": "systemd",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}


def find_program(name):
    """Return the path of a program, having installed its package where that is allowed.

    Where it is not, the test is left out and says so; on CI (CI=true) leaving out is a failure.
    """
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", PACKAGES[name]]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
            subprocess.run(install, capture_output=True, check=False)
        found = shutil.which(name)
    if found is None:
        left_out = f"left out: {name} is missing; apt-get install {PACKAGES[name]}"
        if os.environ.get("CI") == "true":
            pytest.fail(left_out)
        pytest.skip(left_out)
    return found
