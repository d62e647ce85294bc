"""Convert layouts to the arguments of the native core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sds.errors import LayoutError
from sds.geometry.storage_layout import FileStripes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.geometry.storage_layout import ContiguousLayout, RaidLayout, StripeLayout, Stripes

_NS_PER_S = 1_000_000_000
_MAX_OFFSET = (1 << 63) - 1
_MAX_NAMED_OSTS = 1 << 16


def check_addressable(extent: tuple[int, ...], layout: ContiguousLayout) -> None:
    """Raise LayoutError unless every byte of an array has an offset below 2**63."""
    end = layout.element_size_bytes
    for length in extent:
        end *= length
    if end + layout.data_offset_bytes > _MAX_OFFSET:
        message = (
            f"an array of extent {extent} with {layout.element_size_bytes} bytes per element "
            f"at byte {layout.data_offset_bytes} ends past byte 2**63; no file is so large"
        )
        raise LayoutError(message)


def storage_arguments(stripes: StripeLayout, raid: RaidLayout) -> tuple[int, int, int, int, int]:
    """Return striping and RAID as the core's functions take them."""
    return (
        stripes.stripe_size_bytes,
        stripes.stripe_count,
        raid.unit_bytes,
        raid.data_disks,
        raid.min_request_bytes,
    )


def components_arguments(
    stripes: Stripes, raid: RaidLayout
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int, int]:
    """Return components, the OSTs of their objects, and RAID, as the core takes them."""
    components = (
        stripes if isinstance(stripes, FileStripes) else FileStripes.of(stripes)
    ).components
    rows = [
        (
            component.begin_bytes,
            _MAX_OFFSET if component.end_bytes is None else component.end_bytes,
            component.stripes.stripe_size_bytes,
            component.stripes.stripe_count,
        )
        for component in components
    ]
    osts: list[int] = []
    if len(components) > 1 or components[0].osts is not None:
        unknown = 1 + max((max(c.osts) for c in components if c.osts is not None), default=-1)
        for component in components:
            if component.osts is not None:
                osts += component.osts
            elif component.stripes.stripe_count > _MAX_NAMED_OSTS:
                message = (
                    f"{component.stripes.stripe_count} OSTs in one of several stripe components; "
                    f"give at most {_MAX_NAMED_OSTS}"
                )
                raise LayoutError(message)
            else:
                osts += range(unknown, unknown + component.stripes.stripe_count)
                unknown += component.stripes.stripe_count
    return (
        np.array(rows, dtype=np.int64),
        np.array(osts, dtype=np.int64),
        raid.unit_bytes,
        raid.data_disks,
        raid.min_request_bytes,
    )


def budget_ns(budget_s: float | None) -> int:
    """Return a time budget as the core's functions take it; 0: none."""
    return 0 if budget_s is None else max(1, round(budget_s * _NS_PER_S))


def plain_stripes(stripes: Stripes) -> StripeLayout | None:
    """Return the striping of a file that is striped alike everywhere; None of any other.

    On which OSTs its objects are changes no feature, unless several are on one.
    """
    if not isinstance(stripes, FileStripes):
        return stripes
    first = stripes.components[0]
    repeated = first.osts is not None and len(set(first.osts)) < len(first.osts)
    return None if len(stripes.components) > 1 or repeated else first.stripes
