"""Layouts of stored arrays: axis order, chunks, striping over OSTs, RAID below an OST."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from sds.errors import LayoutError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
MAX_SIZE_BYTES = 1 << 50  # of the core


def _check_size(name: str, value: int) -> None:
    if not 0 < value <= MAX_SIZE_BYTES:
        raise LayoutError(f"{name} is {value}; give 1 to 2**50 bytes")


def _check_number(name: str, value: int) -> None:
    if not 0 < value < 1 << 63:
        raise LayoutError(f"{name} is {value}; give at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContiguousLayout:
    """Elements one after another in C order.

    ``order`` is the stored axis order as in `numpy.transpose`: stored axis i is axis ``order[i]``
    of the dataset as its readers know it; None where they are the same.
    """

    element_size_bytes: int
    data_offset_bytes: int = 0
    order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_size("element_size_bytes", self.element_size_bytes)
        if self.data_offset_bytes < 0:
            message = f"data_offset_bytes is {self.data_offset_bytes}; give 0 or more"
            raise LayoutError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeLayout:
    """Lustre striping of one file; without striping ``stripe_count`` is 1."""

    stripe_size_bytes: int
    stripe_count: int

    def __post_init__(self) -> None:
        _check_size("stripe_size_bytes", self.stripe_size_bytes)
        _check_number("stripe_count", self.stripe_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLayout:
    """Elements in chunks, which are stored and read whole, one after another in the file.

    Attributes
    ----------
    chunk_shape
        In stored axes.
    order
        As of `ContiguousLayout`.
    chunk_order
        Order of the axes of the chunk grid in which chunks follow each other, as in
        `numpy.transpose`, the last the fastest; None: C order. HDF5 promises none: it appends
        chunks as they are written first.
    stored_chunk_bytes
        Of a chunk in the file; None where it is not filtered, so that they are its elements'.
    """

    element_size_bytes: int
    chunk_shape: tuple[int, ...]
    data_offset_bytes: int = 0
    order: tuple[int, ...] | None = None
    chunk_order: tuple[int, ...] | None = None
    stored_chunk_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_size("element_size_bytes", self.element_size_bytes)
        if not self.chunk_shape or min(self.chunk_shape) < 1:
            message = f"chunk shape {self.chunk_shape}; give a length of at least 1 for each axis"
            raise LayoutError(message)
        if self.stored_chunk_bytes is not None:
            _check_size("stored_chunk_bytes", self.stored_chunk_bytes)
        if self.data_offset_bytes < 0:
            message = f"data_offset_bytes is {self.data_offset_bytes}; give 0 or more"
            raise LayoutError(message)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk in the file."""
        if self.stored_chunk_bytes is not None:
            return self.stored_chunk_bytes
        return math.prod(self.chunk_shape) * self.element_size_bytes


ArrayLayout: TypeAlias = "ContiguousLayout | ChunkedLayout"


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeComponent:
    """A part of a file with striping of its own.

    Attributes
    ----------
    begin_bytes, end_bytes
        Of the file; ``end_bytes`` is None where it has no end.
    osts
        On which OST each object lies, in the order of the stripes; None where that is not known.
    """

    begin_bytes: int
    end_bytes: int | None
    stripes: StripeLayout
    osts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.osts is not None and len(self.osts) != self.stripes.stripe_count:
            message = f"{len(self.osts)} OSTs named for {self.stripes.stripe_count} stripes"
            raise LayoutError(message)
        if self.osts is not None and not all(0 <= ost < 1 << 16 for ost in self.osts):
            message = f"OST numbers {self.osts}; they are 0 to 65535"
            raise LayoutError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStripes:
    """Striping of one file: one component, or several as of Lustre's progressive file layout.

    In each component bytes are dealt by their offset in the file. Components whose OSTs are not
    known are taken to lie on others than all the rest.
    """

    components: tuple[StripeComponent, ...]

    def __post_init__(self) -> None:
        if not self.components:
            raise LayoutError("a file without any stripe component; give at least one")
        reached: int | None = 0
        for component in self.components:
            end = component.end_bytes
            if component.begin_bytes != reached or (end is not None and end <= reached):
                message = (
                    f"stripe component from byte {component.begin_bytes} to {end} after one that "
                    f"ends at {reached}; components begin at 0 and follow without holes"
                )
                raise LayoutError(message)
            reached = end
        if reached is not None:
            raise LayoutError(f"the last stripe component ends at {reached}; let it have no end")

    @classmethod
    def of(cls, stripes: StripeLayout, osts: tuple[int, ...] | None = None) -> FileStripes:
        """Return the striping of a file that is striped alike everywhere."""
        whole = StripeComponent(begin_bytes=0, end_bytes=None, stripes=stripes, osts=osts)
        return cls(components=(whole,))

    def prevailing(self, begin_bytes: int, end_bytes: int) -> StripeLayout:
        """Return the striping of the component that holds most of a range of the file.

        For models and tables that know one striping per file.
        """

        def share(component: StripeComponent) -> int:
            end = end_bytes if component.end_bytes is None else component.end_bytes
            return min(end, end_bytes) - max(component.begin_bytes, begin_bytes)

        return max(self.components, key=share).stripes


Stripes: TypeAlias = StripeLayout | FileStripes


@dataclass(frozen=True, slots=True, kw_only=True)
class RaidLayout:
    """RAID below one OST, parity left out.

    ``unit_bytes`` lie on one disk before the next; ``min_request_bytes`` is the smallest aligned
    range of an object that is read.
    """

    unit_bytes: int
    data_disks: int
    min_request_bytes: int

    def __post_init__(self) -> None:
        _check_size("unit_bytes", self.unit_bytes)
        _check_size("min_request_bytes", self.min_request_bytes)
        _check_number("data_disks", self.data_disks)

    @classmethod
    def of(
        cls, *, unit_bytes: int, data_disks: int, min_request_bytes: int | None = None
    ) -> RaidLayout:
        """Return a layout whose smallest request is the unit unless said otherwise."""
        request = unit_bytes if min_request_bytes is None else min_request_bytes
        return cls(unit_bytes=unit_bytes, data_disks=data_disks, min_request_bytes=request)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """Storage below one file."""

    stripes: StripeLayout
    raid: RaidLayout


# Liu 2014, Sec. VI: 1 MB stripes over 100 OSTs; RAID 6 of 8+2 disks dealing 512-byte blocks, of
# which the smallest request, 4 KiB, puts one on each data disk.
HOPPER_STRIPES = StripeLayout(stripe_size_bytes=MIB, stripe_count=100)
HOPPER_RAID = RaidLayout(unit_bytes=512, data_disks=8, min_request_bytes=4 * KIB)
HOPPER = FileLayout(stripes=HOPPER_STRIPES, raid=HOPPER_RAID)

# One disk read in pages.
LOCAL_DISK_STRIPES = StripeLayout(stripe_size_bytes=MIB, stripe_count=1)
LOCAL_DISK_RAID = RaidLayout(unit_bytes=4 * KIB, data_disks=1, min_request_bytes=4 * KIB)
LOCAL_DISK = FileLayout(stripes=LOCAL_DISK_STRIPES, raid=LOCAL_DISK_RAID)
