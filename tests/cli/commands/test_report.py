"""``sds report``: a table, JSON, and a page that is complete in itself."""

import json
import re
import socket
from html.parser import HTMLParser

import h5py
import numpy as np
import pytest

from sds import _spool_writer
from sds.home import Home
from tests.organizer.sources import settle
from tests.server.conftest import add_planes

SHAPE = (32, 16, 64)


class Page(HTMLParser):
    """Elements of a page, what they refer to, and the JSON in it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self._is_json, self.receipt = [], [], False, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self._is_json = given.get("id") == "receipt"
        self.references += [given[name] for name in ("src", "href", "data") if name in given]

    def handle_data(self, data):
        if self._is_json:
            self.receipt = json.loads(data)
            self._is_json = False


@pytest.fixture
def cube(tmp_path):
    """A cube in a file whose name a page has to escape."""
    path = tmp_path / "<b>cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros(SHAPE, "f4")
    settle(path)
    return path


@pytest.fixture
def traced(sds, cube, home):
    built = sds("reorganize", f"{cube}:/cube", "--order", "2,0,1", "--json").json
    writer = _spool_writer.SpoolWriter(
        Home(home).spool, pid=2**22 + 1, start_ns=1_000, host=socket.gethostname(),
        executable="/usr/bin/python3",
    )  # fmt: skip
    add_planes(writer, cube, 20, took_ns=30_000_000, extent=SHAPE)
    add_planes(writer, cube, 20, took_ns=1_000_000, extent=SHAPE, served_by=built["id"])
    writer.close()
    return built["id"]


def test_a_report_says_what_replicas_saved_and_cost(sds, cube, traced):
    said = sds("report", cube)
    assert said.code == 0, said.err
    assert re.search(r"saved by replicas +580 ms \(", said.out), said.out
    assert "replicas were built in" in said.out
    found = sds("report", cube, "--json").json
    (one,) = found["replicas"]
    assert one["replica"]["id"] == traced
    assert one["gain"]["saved_s"] == found["saved_by_replicas_s"] == pytest.approx(0.58)
    low, high = (found[f"saved_by_replicas_{end}_s"] for end in ("low", "high"))
    assert low <= found["saved_by_replicas_s"] <= high
    assert found["build_s"] == one["replica"]["build_s"]
    shown = sds("replicas", "show", traced)
    assert "per read   29 ms (measured)" in shown.out


@pytest.mark.usefixtures("traced")
def test_a_page_needs_nothing_from_elsewhere(sds, cube, tmp_path):
    target = tmp_path / "report.html"
    said = sds("report", cube, "--html", target)
    assert (said.code, said.out) == (0, f"{target}\n"), said.err
    text = target.read_text()
    page = Page(text)
    assert page.tags.count("svg") == 2
    assert "b" not in page.tags
    assert all(reference.startswith("#") for reference in page.references)
    assert "url(http" not in text
    assert "@import" not in text
    receipt = sds("report", cube, "--json").json
    for given in (receipt, page.receipt):
        del given["made_ns"]
    assert page.receipt == receipt
    assert sds("report", cube, "--html", target).code == 2
    assert sds("report", cube, "--html", target, "--force").code == 0
    assert sds("report", cube, "--html", tmp_path / "report.pdf").code == 2


def test_a_page_of_nothing_says_so(sds, tmp_path):
    target = tmp_path / "report.html"
    assert sds("report", "--html", target).code == 0
    assert "svg" not in Page(target.read_text()).tags


def test_replicas_that_nothing_read_are_shown(sds, cube):
    sds("reorganize", f"{cube}:/cube", "--order", "2,0,1")
    said = sds("report", cube).out
    assert "no read was traced" in said
    assert f"replicas of {cube}:/cube" in said
