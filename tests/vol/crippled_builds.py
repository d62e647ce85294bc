"""Builds of the connector with one defect each, made from its sources as CMake compiles them.

A defect is a C++ source beside this module that takes the place of a function, or a header that is
included before everything else. The product knows nothing of them: the function's own definition
is compiled under another name, from which the defect may call it.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sds.redirect.launch.connector import PLUGIN_NAME
from tests.under_connector import ROOT

DEFECTS = Path(__file__).parent / "crippled"


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One thing that is wrong with the connector.

    Attributes
    ----------
    file
        Source or header in the folder of defects.
    takes_place_of
        (source of the connector, name in it, the name it is compiled under) for a function;
        the header's marker for a header: sources that mention it are compiled with it.
    caught_by
        Test that fails with it, as pytest names it.
    """

    file: str
    takes_place_of: tuple[str, str, str] | str
    caught_by: str


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def find_cmake():
    """Return the cmake of this environment, else the system's."""
    beside = Path(sysconfig.get_path("scripts")) / "cmake"
    found = beside if beside.exists() else shutil.which("cmake")
    assert found, "cmake is needed to build the connector: pip install cmake"
    return found


def build_connector(tmp_path_factory):
    """Return the directory of a build of the connector, one for all processes of a test run."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    objects = directory / "connector-objects"
    with objects.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (objects / "complete").exists():
            run(find_cmake(), "-S", ROOT, "-B", objects, "-DCMAKE_BUILD_TYPE=Debug",
                "-DSDS_BUILD_PYTHON=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")  # fmt: skip
            run(find_cmake(), "--build", objects, "--parallel", str(os.cpu_count() or 1))
            (objects / "complete").touch()
    return objects


class ConnectorBuild:
    """The connector's objects, and what is needed to compile some of them again."""

    def __init__(self, objects, directory):
        self.directory = directory
        self.core = objects / "libsds_core.a"
        self.commands = {
            Path(entry["file"]): (Path(entry["directory"]), shlex.split(entry["command"]))
            for entry in json.loads((objects / "compile_commands.json").read_text())
            if Path(entry["file"]).suffix == ".cpp"
        }

    def object_of(self, source):
        directory, command = self.commands[source]
        return directory / command[command.index("-o") + 1]

    def compile(self, source, output, *options, like=None):
        """Compile a source as CMake compiles it, or another one of the connector."""
        _, command = self.commands[like or source]
        command = list(command)
        command[command.index("-o") + 1] = str(output)
        command[command.index("-c") + 1] = str(source)
        run(*command, *options)
        return output

    def link(self, name, replaced):
        """Return the folder of a connector of which some objects are replaced by others.

        replaced
            New object by source; the key of an additional object is its own source.
        """
        folder = self.directory / name
        folder.mkdir()
        objects = {source: self.object_of(source) for source in self.commands} | replaced
        run("cc", "-shared", "-pthread", *map(str, objects.values()), str(self.core), "-ldl",
            "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,--no-undefined", "-Wl,--exclude-libs,ALL",
            "-o", str(folder / PLUGIN_NAME))  # fmt: skip
        return folder

    def cripple(self, defect):
        """Return the folder of a connector with this defect."""
        name = Path(defect.file).stem
        scratch = self.directory / f"{name}-objects"
        scratch.mkdir()
        added = DEFECTS / defect.file
        if isinstance(defect.takes_place_of, str):
            sources = [
                source for source in self.commands if defect.takes_place_of in source.read_text()
            ]
            assert sources, f"no source mentions {defect.takes_place_of}"
            with ThreadPoolExecutor(os.cpu_count()) as workers:
                compiled = workers.map(
                    lambda source: self.compile(
                        source, scratch / f"{source.stem}.o", f"-include{added}"
                    ),
                    sources,
                )
                return self.link(name, dict(zip(sources, compiled, strict=True)))
        file, function, renamed = defect.takes_place_of
        (source,) = (source for source in self.commands if source.name == file)
        return self.link(
            name,
            {
                source: self.compile(source, scratch / "sound.o", f"-D{function}={renamed}"),
                added: self.compile(added, scratch / "defect.o", like=source),
            },
        )
