"""Libraries are found by name: one that only has the name decodes nothing."""

import subprocess

import pytest

from tests.false_libraries import WRONG_LIBDEFLATE
from tests.under_connector import native_environment, run_python

OF_ITS_NAME = {
    "wrong bytes": WRONG_LIBDEFLATE,
    "errors": """
        #include <stddef.h>
        void *libdeflate_alloc_decompressor(void) { return ""; }
        int libdeflate_zlib_decompress_ex(void *self, const void *in, size_t n, void *out,
                                          size_t n_out, size_t *used, size_t *made)
        {
            *used = *made = 0;
            return self != NULL && in != NULL && out != NULL && n + n_out > 0;
        }
        void libdeflate_free_decompressor(void *self) { (void)self; }
    """,
}

INFLATE = """
    import ctypes, zlib
    import h5py
    from sds import _native
    from sds.hdf5.codecs import native_filter
    from sds.geometry.replica_layout import Filter
    ctypes.CDLL("libdeflate.so.0").libdeflate_alloc_decompressor   # it is found
    codec = native_filter(Filter(code=1, name="gzip", options=(4,)))
    assert codec is not None
    data = bytes(range(256)) * 100
    assert _native.undo_filter(codec, zlib.compress(data), len(data)) == data
    print(codec[0] == _native.codec_functions()["DEFLATE"][0])
"""


@pytest.mark.parametrize("which", OF_ITS_NAME)
def test_a_library_that_only_has_the_name_of_one_that_inflates(which, tmp_path):
    compile_it = ["cc", "-shared", "-fPIC", "-x", "c", "-o", tmp_path / "libdeflate.so.0", "-"]
    subprocess.run(compile_it, input=OF_ITS_NAME[which], text=True, check=True)
    env = {**native_environment(), "LD_LIBRARY_PATH": str(tmp_path)}
    assert run_python(INFLATE, env=env).stdout == "True\n"
