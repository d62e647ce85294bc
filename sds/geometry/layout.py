"""How bytes are dealt to storage: axis order, striping over OSTs, RAID below an OST."""

from __future__ import annotations

from dataclasses import dataclass

from sds.errors import LayoutError

KIB = 1024
MIB = 1024 * KIB
_MAX_SIZE_BYTES = 1 << 50  # of the core


def _check_size(name: str, value: int) -> None:
    if not 0 < value <= _MAX_SIZE_BYTES:
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
