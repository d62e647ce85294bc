"""Arrays behind the end of a file: what is appended is found, what is cut off is refused."""

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds import _native
from sds.errors import FormatError
from sds.hdf5.trailer import append_trailer, end_with_trailer
from tests.sizes import repeated

arrays_of_any_kind = st.dictionaries(
    st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=16),
    st.binary(max_size=50).map(lambda content: np.frombuffer(content, "u1")),
    min_size=1,
    max_size=16,
)


@given(before=st.binary(max_size=40), arrays=arrays_of_any_kind)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_are_found_where_they_were_written(tmp_path, before, arrays):
    path = tmp_path / "file"
    path.write_bytes(before)
    with path.open("r+b") as stream:
        places = append_trailer(stream.fileno(), arrays)
        assert _native.read_trailer(stream.fileno()) == places
    content = path.read_bytes()
    assert content.startswith(before)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    assert len(content) == end_with_trailer(len(before), sizes)
    for name, (at, size) in places.items():
        assert content[at : at + size] == arrays[name].tobytes()


@given(content=st.binary(max_size=100), n_entries=st.integers(-(2**63), 2**63 - 1))
@settings(
    max_examples=repeated(40, 200), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_other_end_is_refused_or_names_places_in_the_file(tmp_path, content, n_entries):
    path = tmp_path / "file"
    for end in (b"", n_entries.to_bytes(8, "little", signed=True) + b"SDSTRAIL"):
        path.write_bytes(content + end)
        with path.open("rb") as stream:
            try:
                places = _native.read_trailer(stream.fileno())
            except FormatError:
                continue
        assert all(0 <= at <= at + size <= len(content) for at, size in places.values())


def test_hdf5_opens_a_file_with_a_trailer_and_cuts_it_off_when_it_writes(tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(10)
    whole = path.read_bytes()
    with path.open("r+b") as stream:
        append_trailer(stream.fileno(), {"checksums": np.arange(5)})
    with h5py.File(path, "r") as file:
        assert file["d"][...].tolist() == list(range(10))
    with h5py.File(path, "r+"):
        pass
    assert len(path.read_bytes()) == len(whole)
    with path.open("rb") as stream, pytest.raises(FormatError):
        _native.read_trailer(stream.fileno())
