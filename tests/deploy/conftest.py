"""Tools of Debian packages that the files in deploy/ are checked with."""

import os
import shutil
import subprocess

import pytest

PACKAGES = {
    "systemd-analyze": "systemd",
    "luac5.3": "lua5.3",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}


@pytest.fixture(scope="session")
def tool():
    """Return the path of a program, having installed its package where that is allowed.

    Where it is not, the test is left out and says so; on CI (CI=true) leaving out is a failure.
    """

    def find(name):
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

    return find
