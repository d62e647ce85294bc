"""Replicas with their source's filters are the layouts that advice and what-if mean by it."""

import h5py
import numpy as np
import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.errors import LayoutError, UnsupportedError
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset, WhatIfRequest
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.organizer.sources import settle

STATED = {"selection": "[:, :, 3]", "n_reads": 10**6}


@pytest.fixture
def compressed(tmp_path):
    path = tmp_path / "compressed.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "cube",
            data=np.arange(32 * 32 * 64, dtype="<i4").reshape(32, 32, 64),
            chunks=(1, 32, 64),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
            fletcher32=True,
        )
        file.create_dataset(
            "lossy", data=np.ones((32, 32, 64), "<f4"), chunks=(1, 32, 64), scaleoffset=2
        )
    return str(path)


def test_a_filtered_replica_that_exists_is_not_supposed_again(service, compressed):
    layout = {"file": compressed, "dataset": "/cube", "order": (0, 1, 2), "chunks": (32, 32, 1)}
    question = WhatIfRequest(**layout, filtered=True, **STATED)
    assert service.what_if(question).added
    built = service.reorganize(ReorganizeRequest(**layout, compress="source"))
    with pytest.raises(LayoutError, match="exists already"):
        service.what_if(question)
    assert service.what_if(
        WhatIfRequest(file=compressed, dataset="/cube", without=(built.id,), **STATED)
    ).taken_away


def test_filters_that_lose_information_are_not_advised(service, compressed):
    asked = AdviceRequest(datasets=(NamedDataset(file=compressed, dataset="/lossy"),), **STATED)
    advice = service.advise(asked)
    assert any("no filtered layout to advise" in note for note in advice.notes)
    assert not any(advised.layout.filters for advised in advice.portfolio.layouts)
    with pytest.raises(UnsupportedError, match="loses information"):
        service.what_if(
            WhatIfRequest(
                file=compressed,
                dataset="/lossy",
                order=(0, 1, 2),
                chunks=(32, 32, 1),
                filtered=True,
                **STATED,
            )
        )


def test_compressed_replicas_count_with_what_they_are_expected_to_take(home, tmp_path):
    """As in advice, which would else name replicas that are refused."""
    path = tmp_path / "zeros.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "d", data=np.zeros((64, 64, 64), "f4"), chunks=(8, 64, 64), compression=1
        )
    settle(path)
    request = ReorganizeRequest(
        file=str(path), dataset="/d", order=(2, 0, 1), chunks=(8, 64, 64), compress="source"
    )
    with Service.open(home, Settings(replica_budget_bytes=64**3)) as service:
        assert service.reorganize(request).stored_bytes < 64**3
