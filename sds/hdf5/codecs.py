"""Decoders of HDF5's filters, from the installed libraries.

HDF5 undoes filters one chunk at a time, in one thread. The libraries beneath its filters have no
such bound: zlib, which HDF5 itself needs, the codecs inside the filters of hdf5plugin, and h5py's
LZF. Their plain functions are called, not the filters: those count on HDF5's lock, print where a
chunk is damaged, and some read past its end.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sds import _native
from sds.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.geometry.replica_layout import Filter

NativeFilter: TypeAlias = "tuple[int, tuple[int, ...], tuple[int, ...]]"
"""A codec of `sds._native`, its options and the addresses of its functions."""

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
_BZIP2, _LZF, _BLOSC, _LZ4, _BITSHUFFLE, _ZSTD = 307, 32000, 32001, 32004, 32008, 32015
_BITSHUFFLE_CODECS = {0: "BITSHUFFLE", 2: "BITSHUFFLE_LZ4", 3: "BITSHUFFLE_ZSTD"}

_CODECS: dict[str, tuple[int, list[str]]] = _native.codec_functions()


def native_filter(step: Filter) -> NativeFilter | None:
    """Return the decoder of a filter; None where only HDF5 has one.

    HDF5 must have the filter too: a dataset that it cannot read is not read here either.
    """
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    make = _MAKERS.get(step.code)
    if make is None or not h5py.h5z.filter_avail(step.code):
        return None
    return make(step.options)


def _shuffle(options: Sequence[int]) -> NativeFilter | None:
    return _with_functions("SHUFFLE", None, options[:1]) if len(options) == 1 else None


def _fletcher32(_: Sequence[int]) -> NativeFilter | None:
    return _with_functions("FLETCHER32", None)


def _deflate(_: Sequence[int]) -> NativeFilter | None:
    # Half the time of zlib, where it is installed (it comes with TIFF and PNG libraries).
    for codec, library in (("LIBDEFLATE", "libdeflate.so.0"), ("DEFLATE", "libz.so.1")):
        found = _with_functions(codec, library)
        if found is not None and _inflates(found):
            return found
    return None


@functools.cache
def _inflates(codec: NativeFilter) -> bool:
    """Return whether a short stream comes out as it went in.

    The library was found by its name alone: another one may have it.
    """
    text = b"what is written comes back, what is written"
    try:
        return _native.undo_filter(codec, zlib.compress(text), 2 * len(text)) == text
    except FormatError:
        return False


def _lzf(_: Sequence[int]) -> NativeFilter | None:
    import h5py  # noqa: PLC0415

    return _with_functions("LZF", h5py.h5z.__file__)


def _bitshuffle(options: Sequence[int]) -> NativeFilter | None:
    element, block, codec = (*options[2:5], *(0,) * 3)[:3]
    name = _BITSHUFFLE_CODECS.get(codec)
    if name is None or len(options) < 3:  # two of its own version, then the bytes of an element
        return None
    return _with_functions(name, _plugin("bshuf"), (element, block))


def _of_plugin(codec: str, plugin: str) -> Callable[[Sequence[int]], NativeFilter | None]:
    return lambda _: _with_functions(codec, _plugin(plugin))


_MAKERS: dict[int, Callable[[Sequence[int]], NativeFilter | None]] = {
    DEFLATE: _deflate,
    SHUFFLE: _shuffle,
    FLETCHER32: _fletcher32,
    _BZIP2: _of_plugin("BZIP2", "bzip2"),
    _LZF: _lzf,
    _BLOSC: _of_plugin("BLOSC", "blosc"),
    _LZ4: _of_plugin("LZ4", "lz4"),
    _BITSHUFFLE: _bitshuffle,
    _ZSTD: _of_plugin("ZSTD", "zstd"),
}


@functools.cache
def _plugin(name: str) -> str | None:
    """Return the path of a filter of hdf5plugin; it need not have been imported."""
    found = importlib.util.find_spec("hdf5plugin")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, "plugins", f"libh5{name}.so")
        if path.is_file():
            return str(path)
    return None


def _with_functions(
    codec: str, library: str | None, options: Sequence[int] = ()
) -> NativeFilter | None:
    """Return a codec with its functions, None where the library or one of them is missing."""
    number, names = _CODECS[codec]
    addresses = _addresses(library, tuple(names)) if names else ()
    return None if addresses is None else (number, tuple(options), addresses)


@functools.cache
def _addresses(library: str | None, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return where functions of a library are; it stays loaded."""
    if library is None:
        return None
    try:
        loaded = ctypes.CDLL(library)
        functions = [getattr(loaded, name) for name in names]
    except (OSError, AttributeError):
        return None
    return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
