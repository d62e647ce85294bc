"""Bytes of Lustre's layouts, put together field by field as lustre_user.h declares them."""

from __future__ import annotations

import struct

RAID0, MDT, OVERSTRIPING, RELEASED = 0x1, 0x100, 0x200, 0x80000000
INIT, STALE, OFFLINE, PARITY = 0x10, 0x01, 0x08, 0x80
EOF = (1 << 64) - 1


def objects(osts, order="<"):
    """lov_user_ost_data_v1: an object id of 16 bytes, a generation, the OST."""
    return b"".join(
        struct.pack(f"{order}QQII", 0x2_0000_0400 + i, 7 + i, 0, ost) for i, ost in enumerate(osts)
    )


def plain_v1(stripe_size, osts, *, order="<", pattern=RAID0, count=None, magic=0x0BD10BD0):
    """lov_user_md_v1: magic, pattern, object id, stripe size, stripe count, generation."""
    count = len(osts) if count is None else count
    header = struct.pack(f"{order}IIQQIHH", magic, pattern, 2, 0x4E0, stripe_size, count, 0)
    assert len(header) == 32
    return header + objects(osts, order)


def plain_v3(stripe_size, osts, *, pool=b"flash", order="<", pattern=RAID0, count=None):
    """lov_user_md_v3: as version 1, and the name of a pool before the objects."""
    head = plain_v1(stripe_size, osts, order=order, pattern=pattern, count=count, magic=0x0BD30BD0)
    return head[:32] + pool.ljust(16, b"\0") + head[32:]


def composite(components, *, order="<", mirrors=0):
    """lov_comp_md_v1: a header of 32 bytes, an entry of 48 for each component, the layouts.

    ``components``: of (begin, end, flags, mirror, bytes of the layout).
    """
    offset = 32 + 48 * len(components)
    entries, layouts = b"", b""
    for number, (begin, end, flags, mirror, layout) in enumerate(components, start=1):
        entries += struct.pack(
            f"{order}IIQQIIIQI",
            mirror << 16 | number, flags, begin, end, offset + len(layouts), len(layout), 1, 0, 0,
        )  # fmt: skip
        layouts += layout
    size = offset + len(layouts)
    header = struct.pack(
        f"{order}IIIHHHBBHHQ", 0x0BD60BD0, size, 3, 0, len(components), mirrors, 0, 0, 0, 0, 0
    )
    assert len(header) == 32
    assert len(entries) == 48 * len(components)
    return header + entries + layouts


MIB = 1 << 20
# What `lfs setstripe -E 4M -c 1 -S 1M -E 1G -c 4 -S 1M -E eof -c 8 -S 4M` leaves of a full file.
PROGRESSIVE = composite(
    [
        (0, 4 * MIB, INIT, 0, plain_v1(MIB, [11])),
        (4 * MIB, 1024 * MIB, INIT, 0, plain_v3(MIB, [3, 12, 7, 0])),
        (1024 * MIB, EOF, INIT, 0, plain_v1(4 * MIB, [1, 2, 3, 4, 5, 6, 7, 8])),
    ]
)

LFS_PLAIN = """\
lmm_stripe_count:  2
lmm_stripe_size:   4194304
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0
      - l_ost_idx: 0
        l_fid:     0x100000000:0x2:0x0
"""

LFS_PROGRESSIVE = """\
  lcm_layout_gen:    3
  lcm_mirror_count:  1
  lcm_entry_count:   3
components:
  - lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
    sub_layout:
      lmm_stripe_count:  0
      lmm_stripe_size:   1048576
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_stripe_offset: 0

  - lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   1073741824
    sub_layout:
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0,overstriped
      lmm_layout_gen:    0
      lmm_stripe_offset: 5
      lmm_pool:          flash
      lmm_objects:
      - 0: { l_ost_idx: 5, l_fid: [0x100050000:0x20f0:0x0] }
      - 1: { l_ost_idx: 9, l_fid: [0x100090000:0x20f1:0x0] }

  - lcme_id:             3
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1073741824
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
"""
