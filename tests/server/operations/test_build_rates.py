"""Builds are estimated from those that the catalog knows."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.errors import UnreachableError
from sds.geometry.replica_layout import Filter, SortOrder
from sds.recommender.candidates.replica_cost import BUILD_START_S, BuildRates
from sds.server.operations import build_rates
from sds.server.operations.advice_reports import WhatIfRequest
from sds.server.operations.build_rates import measured_build_rates
from sds.server.operations.service import Service
from tests.server.conftest import make_source
from tests.waiting import wait_until

GZIP = (Filter(code=1, name="gzip", options=(4,)),)
MOUNTS = {"/fast/a.h5": "/fast", "/fast/b.h5": "/fast", "/slow/c.h5": "/slow"}


@dataclass
class Built:
    """What a record of the catalog says of a build."""

    rate: float
    seconds: float = 10.0
    file: str = "/fast/b.h5"
    filters: tuple = ()
    sort: SortOrder | None = None
    segments: object = None
    decode_s_per_byte: float = 0.0
    replica: object = field(init=False)

    def __post_init__(self):
        self.build_s = BUILD_START_S + self.seconds
        self.size_bytes = round(self.rate * self.seconds)
        self.replica = self

    @property
    def source_decode_s_per_byte(self):
        return self.decode_s_per_byte


class Catalog:
    def __init__(self, *builds):
        self.builds = builds

    def newest_builds(self, limit):
        return self.builds[:limit]


@pytest.fixture(autouse=True)
def mounted(monkeypatch):
    class Mounted:
        def __init__(self, path):
            if str(path) not in MOUNTS:
                message = f"{path} does not answer"
                raise UnreachableError(message)
            self.mount_point = MOUNTS[str(path)]

    monkeypatch.setattr(build_rates, "filesystem_of", Mounted)


def rates(*builds, file="/fast/a.h5"):
    return measured_build_rates(Catalog(*builds), file)


def test_the_median_of_builds_on_the_same_file_system_counts():
    fast = [Built(rate=rate) for rate in (1e9, 4e8, 3e8)]
    slow = [Built(rate=5e6, file="/slow/c.h5")] * 5
    assert rates(*slow, *fast).plain == pytest.approx(4e8)
    assert rates(*slow, *fast, file="/slow/c.h5").plain == pytest.approx(5e6)


def test_each_kind_has_its_own_rate():
    found = rates(
        Built(rate=4e8),
        Built(rate=3e7, filters=GZIP),
        Built(rate=5e7, decode_s_per_byte=1e-9),  # of a source in filtered chunks
        Built(rate=1e8, sort=SortOrder(key="e", columns=("e",))),
    )
    assert found.plain == pytest.approx(4e8)
    assert found.filtered == pytest.approx(4e7)
    assert found.of_rows == pytest.approx(1e8)


def test_the_newest_count():
    old = [Built(rate=1e6)] * 20
    assert rates(*[Built(rate=4e8)] * 9, *old).plain == pytest.approx(4e8)


@pytest.mark.parametrize(
    ("builds", "file"),
    [
        ([], "/fast/a.h5"),
        ([Built(rate=1e6, seconds=0.3)], "/fast/a.h5"),  # says how a build begins, no rate
        ([Built(rate=1e6, segments="tiles")], "/fast/a.h5"),  # takes the time of its source
        ([Built(rate=1e6, file="/gone/d.h5")], "/fast/a.h5"),
        ([Built(rate=1e6)], "/gone/d.h5"),
    ],
)
def test_what_is_not_known_is_built_in(builds, file):
    assert rates(*builds, file=file) == BuildRates()


def test_advice_goes_by_them(home, tmp_path, monkeypatch):
    monkeypatch.undo()
    source = make_source(tmp_path / "cube.h5")
    asked = WhatIfRequest(
        file=str(source), dataset="/cube", order=(2, 0, 1), selection=("[:, :, 0]",)
    )

    with Service.open(home) as service:
        service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=(1, 0, 2)))
        before = service.what_if(asked).build_s
        (record,) = service._store.newest_builds(5)
        service._store.set_replica(record.id, record.state, "as if it had taken long", build_s=1e4)
        after = service.what_if(asked).build_s
        assert after > 100 * before


def test_a_replica_that_was_found_whole_is_no_build(home, tmp_path, monkeypatch):
    monkeypatch.undo()
    source = make_source(tmp_path / "cube.h5")
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=(1, 0, 2))
    with Service.open(home) as service:
        built = service.reorganize(request).build_s
        assert built is not None
        created = service.replicas()[0].replica.created
        wait_until(
            lambda: datetime.now(UTC).replace(microsecond=0) > datetime.fromisoformat(created),
            "the second of the build is over",
        )
        assert service.reorganize(request).build_s in {None, built}
