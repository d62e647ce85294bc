"""Filters of chunked replicas: what a request names, and whether this HDF5 library has it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sds.errors import ConfigurationError, UnsupportedError
from sds.geometry.replica_layout import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALE_OFFSET = range(1, 7)
BZIP2, LZF, BLOSC, LZ4, BITSHUFFLE, ZSTD, BLOSC2 = 307, 32000, 32001, 32004, 32008, 32015, 32026

_NAMES = {
    DEFLATE: "gzip",
    SHUFFLE: "shuffle",
    FLETCHER32: "fletcher32",
    SZIP: "szip",
    NBIT: "nbit",
    SCALE_OFFSET: "scaleoffset",
    BZIP2: "bzip2",
    LZF: "lzf",
    BLOSC: "blosc",
    LZ4: "lz4",
    BITSHUFFLE: "bitshuffle",
    ZSTD: "zstd",
    BLOSC2: "blosc2",
}
# What they decode is not what was encoded.
_LOSSY = {
    32013: "zfp",
    32017: "sz",
    32019: "jpeg",
    32022: "bitgroom",
    32023: "granular bitround",
    32024: "sz3",
    32028: "sperr",
}
# The first options are written by the filter itself each time a dataset is created; those of the
# user come behind, and have to be first when they are given again.
_OPTIONS_OF_ITS_OWN = {BITSHUFFLE: 3}
_SCALE_OFFSET_OF_INTEGERS = 2
_REARRANGE = {SHUFFLE}
# Code, and default, lowest and highest level.
_LEVELS = {"gzip": (DEFLATE, 4, 0, 9), "zstd": (ZSTD, 3, 1, 22), "bzip2": (BZIP2, 9, 1, 9)}
_BLOSC_CODECS = {"blosclz": 0, "lz4": 1, "lz4hc": 2, "snappy": 3, "zlib": 4, "zstd": 5}

EXAMPLES = "gzip:4, shuffle,gzip:4, zstd:3, source or none"


def parse_filters(text: str, source: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters that a text such as ``shuffle,gzip:4`` names, in order of writing.

    Parameters
    ----------
    text
        ``none``; ``source``, those of the source; or names with options, separated by commas.
    source
        The filters of the source.

    Raises
    ------
    ConfigurationError
        If a name or an option is not one of those, or hdf5plugin is needed and not installed.
    UnsupportedError
        If the source's own filters lose information.
    """
    words = [word.strip().lower() for word in text.split(",")]
    if words == ["none"]:
        return ()
    if words == ["source"]:
        return tuple(_again(step) for step in source if step.code != FLETCHER32)
    chosen = [_parse_one(word, text) for word in words]
    if len({step.code for step in chosen}) < len(chosen):
        message = f"filters {text!r}: the same filter twice; name each once"
        raise ConfigurationError(message)
    compressors = [step for step in chosen if step.code not in _REARRANGE]
    if len(compressors) > 1:
        names = " and ".join(step.name for step in compressors)
        message = f"filters {text!r}: {names} both compress; name one of them"
        raise ConfigurationError(message)
    return (*(step for step in chosen if step.code in _REARRANGE), *compressors)


def _parse_one(word: str, text: str) -> Filter:
    name, *options = word.split(":")
    maker = _MAKERS.get(name)
    if maker is None:
        known = ", ".join(sorted(_MAKERS))
        message = (
            f"{name!r} in filters {text!r} is no filter that SDS writes ({known}): "
            f"write for example {EXAMPLES}"
        )
        raise ConfigurationError(message)
    return maker(name, options)


def _level(name: str, options: Sequence[str], *, default: int, lowest: int, highest: int) -> int:
    """Return the one option of a filter, a level."""
    if not options:
        return default
    (first, *rest) = options
    if rest or re.fullmatch(r"-?\d+", first, re.ASCII) is None:
        message = f"filter {name}:{':'.join(options)}: give one level, as in {name}:{default}"
        raise ConfigurationError(message)
    if not lowest <= int(first) <= highest:
        message = f"filter {name}:{first}: its levels are {lowest} to {highest}"
        raise ConfigurationError(message)
    return int(first)


def _with_level(name: str, options: Sequence[str]) -> Filter:
    code, default, lowest, highest = _LEVELS[name]
    level = _level(name, options, default=default, lowest=lowest, highest=highest)
    return Filter(code=code, name=name, options=(level,))


def _without_options(name: str, options: Sequence[str]) -> Filter:
    if options:
        message = f"filter {name}:{':'.join(options)}: {name} has no options; leave them out"
        raise ConfigurationError(message)
    return Filter(code={"shuffle": SHUFFLE, "lzf": LZF, "lz4": LZ4}[name], name=name)


def _bitshuffle(name: str, options: Sequence[str]) -> Filter:
    codec, *level = options or ["lz4"]
    if codec not in {"none", "lz4", "zstd"} or (level and codec != "zstd"):
        message = (
            f"filter {name}:{':'.join(options)}: write {name}:none, {name}:lz4 or {name}:zstd:3"
        )
        raise ConfigurationError(message)
    of_codec = {
        "none": (0, 0),
        "lz4": (0, 2),
        "zstd": (0, 3, _level(f"{name}:zstd", level, default=3, lowest=1, highest=22)),
    }[codec]
    return Filter(code=BITSHUFFLE, name=name, options=of_codec)


def _blosc(name: str, options: Sequence[str]) -> Filter:
    codecs = {codec for codec in _BLOSC_CODECS if name == "blosc" or codec != "snappy"}
    codec, *level = options or ["lz4"]
    if codec not in codecs:
        message = f"filter {name}:{codec}: its codecs are {', '.join(sorted(codecs))}"
        raise ConfigurationError(message)
    chosen = _level(f"{name}:{codec}", level, default=5, lowest=0, highest=9)
    return Filter(
        code=BLOSC if name == "blosc" else BLOSC2,
        name=name,
        # The first four the filter fills in itself; then level, shuffle, codec.
        options=(0, 0, 0, 0, chosen, 1, _BLOSC_CODECS[codec]),
    )


def _of_plugin(make: Callable[[str, Sequence[str]], Filter]) -> Callable[..., Filter]:
    """Return a maker of filters that says what is missing where hdf5plugin is."""

    def checked(name: str, options: Sequence[str]) -> Filter:
        try:
            import hdf5plugin  # noqa: F401, PLC0415  (registers its filters)
        except ImportError as error:
            message = (
                f"filter {name!r} comes with the package hdf5plugin, which is not installed: "
                "pip install hdf5plugin, or use gzip"
            )
            raise ConfigurationError(message) from error
        return make(name, options)

    return checked


_MAKERS: dict[str, Callable[[str, Sequence[str]], Filter]] = {
    "gzip": _with_level,
    "shuffle": _without_options,
    "lzf": _without_options,
    "lz4": _of_plugin(_without_options),
    "zstd": _of_plugin(_with_level),
    "bzip2": _of_plugin(_with_level),
    "bitshuffle": _of_plugin(_bitshuffle),
    "blosc": _of_plugin(_blosc),
    "blosc2": _of_plugin(_blosc),
}


def _again(step: Filter) -> Filter:
    """Return a filter of the source as a new dataset has to ask for it."""
    integers = step.options[:1] == (_SCALE_OFFSET_OF_INTEGERS,)
    if step.code in _LOSSY or (step.code == SCALE_OFFSET and not integers):
        name = _LOSSY.get(step.code, "scaleoffset")
        message = (
            f"the source's filter {step.code} ({name}) loses information each time it is applied, "
            "and a replica holds the bytes of its source: choose another, for example gzip:4"
        )
        raise UnsupportedError(message)
    skipped = _OPTIONS_OF_ITS_OWN.get(step.code, 0)
    return replace(step, name=filter_name(step), options=step.options[skipped:])


def compresses(filters: Sequence[Filter]) -> bool:
    """Return whether filters make most data smaller."""
    return any(step.code not in {SHUFFLE, FLETCHER32} for step in filters)


def filter_name(step: Filter) -> str:
    """Return the name of a filter as it is written in a request; HDF5's own for an unknown one."""
    return _NAMES.get(step.code) or step.name or str(step.code)


def format_filters(filters: Sequence[Filter]) -> str:
    """Return filters as people read them; ``none`` where there are none."""
    return ",".join(map(_format_one, filters)) or "none"


def _format_one(step: Filter) -> str:
    name = filter_name(step)
    return f"{name}:{step.options[0]}" if name in _LEVELS and step.options else name


def require_filters(filters: Sequence[Filter], what: str, *, encode: bool) -> None:
    """Raise UnsupportedError for a filter that this HDF5 library lacks.

    hdf5plugin's filters are loaded where they are needed and installed.

    Parameters
    ----------
    what
        Whose filters they are, to be named.
    encode
        Whether they are to write too.
    """
    import h5py  # noqa: PLC0415  (naming filters needs no HDF5)

    for step in filters:
        if not h5py.h5z.filter_avail(step.code):
            _load_plugins()
        if not h5py.h5z.filter_avail(step.code):
            message = (
                f"{what} is stored with filter {step.code} ({step.name or 'unnamed'}), which is "
                "not installed: install its plugin (many come with the package hdf5plugin) and "
                "set HDF5_PLUGIN_PATH"
            )
            raise UnsupportedError(message)
        able = h5py.h5z.get_filter_info(step.code) & h5py.h5z.FILTER_CONFIG_ENCODE_ENABLED
        if encode and not able:
            message = (
                f"filter {step.code} ({step.name}) can be read by this HDF5 library but not "
                "written: choose another for the replica, for example gzip:4"
            )
            raise UnsupportedError(message)


def _load_plugins() -> None:
    """Register the filters of hdf5plugin, where that is installed."""
    try:
        import hdf5plugin  # noqa: F401, PLC0415  (optional; registers its filters)
    except ImportError:
        return
