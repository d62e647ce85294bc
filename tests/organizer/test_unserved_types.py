"""Of what no program would be served from, no replica is built or advised."""

import h5py
import numpy as np
import pytest

from sds.errors import UnsupportedError
from sds.home import Home
from sds.organizer import plan_reorganization
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
from sds.server.operations.service import Service
from tests.organizer.sources import settle


def complex_of_hdf5():
    native = getattr(h5py.h5t, "COMPLEX_IEEE_F64LE", None)
    if native is None:
        pytest.skip("this h5py knows no complex numbers of HDF5 2.0")
    return native


def compound_with_complex():
    made = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    made.insert(b"e", 0, h5py.h5t.IEEE_F64LE)
    made.insert(b"z", 8, complex_of_hdf5())
    return made


@pytest.mark.parametrize("make", [complex_of_hdf5, compound_with_complex])
def test_a_type_that_is_never_redirected_gets_no_replica(make, tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver="latest") as file:
        space = h5py.h5s.create_simple((64, 64, 64))
        dataset = h5py.h5d.create(file.id, b"d", make(), space)
        if make is complex_of_hdf5:
            h5py.Dataset(dataset)[...] = np.ones((64, 64, 64), "c16")
    settle(path)
    home = Home(tmp_path / "home")
    with pytest.raises(UnsupportedError, match=r"/d in .* would not be served .* type class 11"):
        plan_reorganization(path, "/d", order=(2, 0, 1), home=home)
    with Service.open(home) as service:
        named = (NamedDataset(file=str(path), dataset="/d"),)
        advice = service.advise(AdviceRequest(datasets=named, selection="[:, :, 3]", n_reads=1000))
        assert advice.portfolio.layouts == ()
        assert any("would not be served" in str(note) for note in advice.notes), advice
