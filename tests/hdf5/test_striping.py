from __future__ import annotations

import pytest

from sds.geometry import FileStripes, StripeLayout
from sds.hdf5.striping import StripesSource, find_stripes
from tests.fake_lfs import answering, put_lfs
from tests.geometry.lustre_layouts import LFS_PLAIN, LFS_PROGRESSIVE, MIB

CONFIGURED = StripeLayout(stripe_size_bytes=2 * MIB, stripe_count=5)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a b.h5"
    path.write_bytes(b"x")
    return path


def test_where_nobody_knows_one_ost_is_assumed(file):
    found = find_stripes(file)
    assert found.source is StripesSource.ASSUMED
    assert found.stripes.components[0].stripes.stripe_count == 1
    assert found.problem is None


def test_what_is_configured_holds_where_lustre_says_nothing(file):
    found = find_stripes(file, CONFIGURED)
    assert found.source is StripesSource.CONFIGURED
    assert found.stripes == FileStripes.of(CONFIGURED)
    assert str(found.source) == "configured"


def test_lfs_is_asked_before_what_is_configured(file, tmp_path, monkeypatch):
    called = put_lfs(tmp_path, monkeypatch, answering(LFS_PLAIN))
    found = find_stripes(file, CONFIGURED)
    assert str(found.source) == "from lfs getstripe"
    stripes = StripeLayout(stripe_size_bytes=4 * MIB, stripe_count=2)
    assert found.stripes == FileStripes.of(stripes, (1, 0))
    assert called.read_text().splitlines() == ["getstripe", "-y", str(file)]


def test_lfs_tells_components(file, tmp_path, monkeypatch):
    put_lfs(tmp_path, monkeypatch, answering(LFS_PROGRESSIVE))
    found = find_stripes(file)
    assert [c.end_bytes for c in found.stripes.components] == [MIB, None]
    assert found.stripes.prevailing(0, 100 * MIB).stripe_count == 2
    assert found.stripes.prevailing(0, MIB).stripe_count == 1


def test_an_lfs_that_fails_or_talks_nonsense_is_passed_over_with_the_reason(
    file, tmp_path, monkeypatch
):
    put_lfs(tmp_path, monkeypatch, answering("lmm_stripe_count: 3\nlmm_stripe_size: 5\n"))
    found = find_stripes(file, CONFIGURED)
    assert found.source is StripesSource.CONFIGURED
    assert "no multiple of 64 KiB" in (found.problem or "")
    (tmp_path / "bin" / "lfs").write_text("#!/bin/sh\nexit 1\n")
    assert find_stripes(file, CONFIGURED).problem is None
    (tmp_path / "bin" / "lfs").write_bytes(b"\x7fELF no program")
    assert "gives no answer" in (find_stripes(file, CONFIGURED).problem or "")


def test_files_that_are_not_there_are_not_asked_about(tmp_path, monkeypatch):
    called = put_lfs(tmp_path, monkeypatch, answering(LFS_PLAIN))
    assert find_stripes(tmp_path / "none.h5").source is StripesSource.ASSUMED
    assert not called.exists()
