"""Parse the striping of a file as Lustre reports it.

Two forms are understood: the bytes of the extended attribute ``lustre.lov`` (layouts of version 1
and 3, and composite ones) and what ``lfs getstripe -y`` prints. Both come from outside and may say
anything: whatever does not make sense is refused with the reason, and nothing is supposed instead.

Source: lustre_user.h of Lustre 2.15 (lov_user_md_v1, lov_user_md_v3, lov_comp_md_v1); the Lustre
manual, "Managing File Layout (Striping) and Free Space". Numbers are little-endian, or of the
order in which the magic number is read.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from sds.errors import FormatError, LayoutError
from sds.geometry.storage_layout import FileStripes, StripeComponent, StripeLayout

STRIPE_SIZE_UNIT_BYTES = 64 * 1024
"""Lustre's stripe sizes are multiples of it."""

_MAGIC_V1 = 0x0BD10BD0
_MAGIC_V3 = 0x0BD30BD0
_MAGIC_SPECIFIC = 0x0BD50BD0  # version 3 of which a user named the OSTs
_MAGIC_COMPOSITE = 0x0BD60BD0
_MAGIC_FOREIGN = 0x0BD70BD0

_PATTERN_MDT = 0x100
_PATTERN_KNOWN = 0x001 | _PATTERN_MDT | 0x200 | 0x800  # striped, overstriped, compressed
_PATTERN_FLAGS = 0xFFFF0000
_PATTERN_RELEASED = 0x80000000

_ENTRY_STALE, _ENTRY_OFFLINE, _ENTRY_INIT = 0x01, 0x08, 0x10
_ENTRY_PARITY = 0x80
_MIRROR_SHIFT, _MIRROR_MASK = 16, 0x7FFF

_HEADER = "IIQQIHH"  # magic, pattern, object id (2), stripe size, stripe count, generation
_POOL_NAME_BYTES = 16
_OBJECT = "QQII"  # object id (2), generation, OST
_COMPOSITE = "IIIHHHBBHHQ"  # magic, size, generation, flags, entries, mirrors ...
_ENTRY = "IIQQIIIQI"  # id, flags, begin, end, offset, size, generation, time, other

_MAX_COMPONENTS = 1 << 12
_END = (1 << 64) - 1
_ALL_OSTS = 0xFFFF  # -1: as many as there are; only of what is not written yet


@dataclass(slots=True, kw_only=True)
class _Part:
    """A component as it is read, before it is known to make sense."""

    begin: int = 0
    end: int = _END
    mirror: int = 0
    usable: bool = True  # written, not out of date, no parity
    stripe_size: int = 0
    stripe_count: int = 0
    on_mdt: bool = False
    released: bool = False
    osts: list[int] = field(default_factory=list)


def stripes_of_attribute(value: bytes) -> FileStripes:
    """Return the striping that the bytes of ``lustre.lov`` describe.

    Raises
    ------
    FormatError
        If they are cut off, of an unknown kind or make no sense; says which.
    """
    if len(value) < 4:
        raise FormatError(f"lustre.lov has {len(value)} bytes, less than a magic number")
    for order in "<>":
        (magic,) = struct.unpack_from(f"{order}I", value)
        if magic in (_MAGIC_V1, _MAGIC_V3, _MAGIC_SPECIFIC):
            return _stripes_of([_read_plain(value, order)])
        if magic == _MAGIC_COMPOSITE:
            return _stripes_of(_read_composite(value, order))
        if magic == _MAGIC_FOREIGN:
            raise FormatError("lustre.lov says that the file lies outside Lustre (foreign layout)")
    (magic,) = struct.unpack_from("<I", value)
    raise FormatError(f"lustre.lov begins with {magic:#010x}, which is no layout known here")


def _unpack(layout: str, value: bytes, offset: int, what: str) -> tuple[int, ...]:
    if len(value) - offset < struct.calcsize(layout):
        message = f"lustre.lov ends after {len(value)} bytes, in the middle of {what}"
        raise FormatError(message)
    return struct.unpack_from(layout, value, offset)


def _read_plain(value: bytes, order: str) -> _Part:
    """Return a layout of version 1 or 3, which stands at the beginning of some bytes."""
    magic, pattern, _, _, size, count, _ = _unpack(order + _HEADER, value, 0, "a layout")
    if magic not in (_MAGIC_V1, _MAGIC_V3, _MAGIC_SPECIFIC):
        raise FormatError(f"lustre.lov has a component of an unknown kind, {magic:#010x}")
    if pattern & ~_PATTERN_FLAGS & ~_PATTERN_KNOWN:
        raise FormatError(f"lustre.lov names a pattern that is not known here, {pattern:#x}")
    part = _Part(
        stripe_size=size,
        stripe_count=count,
        on_mdt=bool(pattern & _PATTERN_MDT),
        released=bool(pattern & _PATTERN_RELEASED),
    )
    offset = struct.calcsize(order + _HEADER)
    offset += 0 if magic == _MAGIC_V1 else _POOL_NAME_BYTES
    if part.on_mdt or part.released or count == _ALL_OSTS:
        return part
    # What is not written yet has a count, but no objects.
    if len(value) > offset:
        each = struct.calcsize(order + _OBJECT)
        if (len(value) - offset) // each < count:
            message = f"lustre.lov ends after {len(value)} bytes, {count} stripes need more"
            raise FormatError(message)
        part.osts = [
            struct.unpack_from(order + _OBJECT, value, offset + i * each)[3] for i in range(count)
        ]
    return part


def _read_composite(value: bytes, order: str) -> list[_Part]:
    header = _unpack(order + _COMPOSITE, value, 0, "a composite layout's header")
    size_bytes, n_entries = header[1], header[4]
    if size_bytes > len(value):
        raise FormatError(f"lustre.lov ends after {len(value)} of {size_bytes} bytes")
    if not 0 < n_entries <= _MAX_COMPONENTS:
        raise FormatError(f"lustre.lov names {n_entries} components")
    parts = []
    for i in range(n_entries):
        at = struct.calcsize(order + _COMPOSITE) + i * struct.calcsize(order + _ENTRY)
        number, flags, begin, end, offset, length, *_ = _unpack(
            order + _ENTRY, value, at, f"component {i + 1} of {n_entries}"
        )
        if offset + length > len(value):
            message = f"lustre.lov puts component {i + 1} past its end: byte {offset + length}"
            raise FormatError(message)
        part = _read_plain(value[offset : offset + length], order)
        part.begin, part.end = begin, end
        part.mirror = number >> _MIRROR_SHIFT & _MIRROR_MASK
        part.usable = bool(flags & _ENTRY_INIT) and not flags & (
            _ENTRY_STALE | _ENTRY_OFFLINE | _ENTRY_PARITY
        )
        parts.append(part)
    return parts


# ---- what lfs prints ----

_LINE = re.compile(r"\s*(?:-\s+)?([a-z_][\w.]*)\s*:\s*(.*?)\s*", re.ASCII)
_OST = re.compile(r"l_ost_idx:\s*(\d+)", re.ASCII)


def stripes_of_lfs(text: str) -> FileStripes:
    """Return the striping that the output of ``lfs getstripe -y`` describes.

    Raises
    ------
    FormatError
        If it lacks something, or makes no sense; says what.
    """
    parts: list[_Part] = []
    seen: set[str] = set()
    for line in text.splitlines():
        if (ost := _OST.search(line)) is not None and parts:
            parts[-1].osts.append(_number(ost[1], "l_ost_idx"))
            continue
        if (match := _LINE.fullmatch(line)) is None:
            continue
        name, value = match[1], match[2]
        if name == "lcme_id" or (name == "lmm_stripe_count" and not parts):
            parts.append(_Part())
            seen.clear()
        if len(parts) > _MAX_COMPONENTS:
            raise FormatError(f"lfs names more than {_MAX_COMPONENTS} components")
        if parts and name in seen and name.startswith(("lmm_stripe", "lcme_")):
            raise FormatError(f"lfs names {name} twice of one component")
        seen.add(name)
        if parts:
            _take_line(parts[-1], name, value)
    if not parts:
        first = text.strip().splitlines()[0] if text.strip() else "nothing"
        raise FormatError(f"lfs says nothing about stripes: {first[:80]}")
    return _stripes_of(parts)


def _take_line(part: _Part, name: str, value: str) -> None:
    words = value.split(",")
    if name == "lmm_stripe_count":
        part.stripe_count = _ALL_OSTS if value == "-1" else _number(value, name)
    elif name == "lmm_stripe_size":
        part.stripe_size = _number(value, name)
    elif name == "lmm_pattern":
        part.on_mdt = "mdt" in words
        part.released = "released" in words
        if not {"raid0", "mdt"} & set(words):
            raise FormatError(f"lfs names a pattern that is not known here, {value[:40]!r}")
    elif name == "lcme_mirror_id":
        part.mirror = _number(value, name)
    elif name == "lcme_flags":
        part.usable = "init" in words and not {"stale", "offline", "parity"} & set(words)
    elif name == "lcme_extent.e_start":
        part.begin = _number(value, name)
    elif name == "lcme_extent.e_end":
        part.end = _END if value == "EOF" else _number(value, name)


def _number(text: str, name: str) -> int:
    if not re.fullmatch(r"\d{1,20}", text, re.ASCII):
        raise FormatError(f"lfs says {name} is {text[:40]!r}, which is no number")
    return int(text)


# ---- sense ----


def _stripes_of(parts: list[_Part]) -> FileStripes:
    """Return the striping of one mirror, as far as it is written, made whole to the end."""
    usable = [part for part in parts if part.usable]
    if not usable:
        raise FormatError("none of its components holds anything yet")
    mirror = usable[0].mirror
    chosen = sorted((part for part in usable if part.mirror == mirror), key=lambda p: p.begin)
    components = [_component(part) for part in chosen]
    last = components[-1]
    components[-1] = StripeComponent(
        begin_bytes=last.begin_bytes, end_bytes=None, stripes=last.stripes, osts=last.osts
    )
    try:
        return FileStripes(components=tuple(components))
    except LayoutError as error:
        raise FormatError(f"its components make no file: {error}") from error


def _component(part: _Part) -> StripeComponent:
    if part.released:
        raise FormatError("the file is released to an archive: it has no stripes now")
    if part.stripe_size <= 0 or part.stripe_size % STRIPE_SIZE_UNIT_BYTES:
        message = f"a stripe size of {part.stripe_size} bytes is no multiple of 64 KiB"
        raise FormatError(message)
    end = None if part.end >= 1 << 63 else part.end
    if part.on_mdt:
        # On the metadata server, in one piece: as if it were an OST that no other part is on.
        one = StripeLayout(stripe_size_bytes=part.stripe_size, stripe_count=1)
        return StripeComponent(begin_bytes=part.begin, end_bytes=end, stripes=one)
    if not 0 < part.stripe_count < _ALL_OSTS:
        raise FormatError(f"a stripe count of {part.stripe_count} for what is written")
    if part.osts and len(part.osts) != part.stripe_count:
        message = f"{len(part.osts)} OSTs are named for {part.stripe_count} stripes"
        raise FormatError(message)
    stripes = StripeLayout(stripe_size_bytes=part.stripe_size, stripe_count=part.stripe_count)
    try:
        return StripeComponent(
            begin_bytes=part.begin,
            end_bytes=end,
            stripes=stripes,
            osts=tuple(part.osts) or None,
        )
    except LayoutError as error:
        raise FormatError(f"its OSTs make no sense: {error}") from error
