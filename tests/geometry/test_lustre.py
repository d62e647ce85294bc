from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.errors import FormatError
from sds.geometry import FileStripes, StripeComponent, StripeLayout
from sds.geometry.lustre import stripes_of_attribute, stripes_of_lfs
from tests.geometry.lustre_layouts import (
    EOF,
    INIT,
    LFS_PLAIN,
    LFS_PROGRESSIVE,
    MDT,
    MIB,
    OFFLINE,
    OVERSTRIPING,
    PARITY,
    PROGRESSIVE,
    RAID0,
    RELEASED,
    STALE,
    composite,
    objects,
    plain_v1,
    plain_v3,
)
from tests.sizes import repeated


def component(begin, end, size, *osts, count=None):
    count = len(osts) if count is None else count
    return StripeComponent(
        begin_bytes=begin,
        end_bytes=end,
        stripes=StripeLayout(stripe_size_bytes=size, stripe_count=count),
        osts=osts or None,
    )


def of(*components):
    return FileStripes(components=components)


PROGRESSIVE_STRIPES = of(
    component(0, 4 * MIB, MIB, 11),
    component(4 * MIB, 1024 * MIB, MIB, 3, 12, 7, 0),
    component(1024 * MIB, None, 4 * MIB, 1, 2, 3, 4, 5, 6, 7, 8),
)


@pytest.mark.parametrize(
    ("value", "stripes"),
    [
        (plain_v1(MIB, [4, 2, 9]), of(component(0, None, MIB, 4, 2, 9))),
        (plain_v1(MIB, [4, 2, 9], order=">"), of(component(0, None, MIB, 4, 2, 9))),
        (plain_v3(64 << 10, [1]), of(component(0, None, 64 << 10, 1))),
        (plain_v1(MIB, [4, 4], pattern=RAID0 | OVERSTRIPING), of(component(0, None, MIB, 4, 4))),
        (plain_v1(MIB, [1, 2], magic=0x0BD10BD0)[:32], of(component(0, None, MIB, count=2))),
        (PROGRESSIVE, PROGRESSIVE_STRIPES),
    ],
)
def test_layouts_are_read(value, stripes):
    assert stripes_of_attribute(value) == stripes


def test_the_bytes_of_a_small_layout():
    """Written out, so that a slip of the fixtures is no slip of the parser as well."""
    value = bytes.fromhex(
        "d00bd10b 01000000"  # magic, pattern
        "0200000000000000 e004000000000000"  # object id
        "00001000 0200 0000"  # 1 MiB, 2 stripes, generation
        "0100000000000000 0000000000000000 00000000 05000000"  # object, generation, OST 5
        "0200000000000000 0000000000000000 00000000 06000000"
    )
    assert stripes_of_attribute(value) == of(component(0, None, MIB, 5, 6))


def test_only_what_is_written_and_in_date_counts():
    value = composite(
        [
            (0, MIB, INIT, 0, plain_v1(MIB, [], pattern=MDT, count=0)),
            (MIB, 64 * MIB, INIT, 0, plain_v1(MIB, [3, 1])),
            (64 * MIB, EOF, 0, 0, plain_v1(4 * MIB, [], count=0xFFFF)),
        ]
    )
    assert stripes_of_attribute(value) == of(
        component(0, MIB, MIB, count=1), component(MIB, None, MIB, 3, 1)
    )


def test_a_mirror_that_is_out_of_date_is_not_read():
    mirrors = [
        (0, EOF, INIT | STALE, 1, plain_v1(MIB, [0])),
        (0, 8 * MIB, INIT, 2, plain_v1(MIB, [1])),
        (8 * MIB, EOF, INIT, 2, plain_v1(2 * MIB, [2, 3])),
        (0, EOF, INIT, 3, plain_v1(MIB, [4])),
        (0, EOF, INIT | PARITY, 4, plain_v1(MIB, [5])),
        (0, EOF, INIT | OFFLINE, 5, plain_v1(MIB, [6])),
    ]
    assert stripes_of_attribute(composite(mirrors, mirrors=5)) == of(
        component(0, 8 * MIB, MIB, 1), component(8 * MIB, None, 2 * MIB, 2, 3)
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "0 bytes, less than a magic number"),
        (b"\xd0\x0b", "2 bytes, less than"),
        (b"ELF!" + bytes(60), "begins with 0x21464c45, which is no layout known here"),
        (plain_v1(MIB, [1, 2])[:30], "ends after 30 bytes, in the middle of a layout"),
        (plain_v1(MIB, [1, 2])[:70], "ends after 70 bytes, 2 stripes need more"),
        (plain_v1(MIB, [1], count=60_000), "60000 stripes need more"),
        (plain_v1(0, [1]), "stripe size of 0 bytes"),
        (plain_v1(4096, [1]), "4096 bytes is no multiple of 64 KiB"),
        (plain_v1(MIB, [], count=0), "stripe count of 0"),
        (plain_v1(MIB, [], count=0xFFFF), "stripe count of 65535"),
        (plain_v1(MIB, [1], pattern=0x04), "a pattern that is not known here, 0x4"),
        (plain_v1(MIB, [1], pattern=RAID0 | RELEASED), "released to an archive"),
        (plain_v1(MIB, [1, 1 << 31]), "OSTs make no sense"),
        (struct.pack("<I", 0x0BD70BD0) + bytes(28), "outside Lustre"),
        (PROGRESSIVE[:40], "ends after 40 of"),
        (composite([]), "names 0 components"),
        (composite([(0, EOF, 0, 0, plain_v1(MIB, []))]), "none of its components holds anything"),
        (composite([(0, EOF, INIT, 0, b"\0" * 32)]), "a component of an unknown kind"),
        (composite([(MIB, EOF, INIT, 0, plain_v1(MIB, [1]))]), "make no file"),
        (
            composite(
                [(0, MIB, INIT, 0, plain_v1(MIB, [1])), (2 * MIB, EOF, INIT, 0, plain_v1(MIB, [2]))]
            ),
            "make no file",
        ),
        (
            composite(
                [(0, 2 * MIB, INIT, 0, plain_v1(MIB, [1])), (MIB, EOF, INIT, 0, plain_v1(MIB, [2]))]
            ),
            "make no file",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(value, reason):
    with pytest.raises(FormatError, match=reason):
        stripes_of_attribute(value)


def test_a_component_past_the_end_is_refused():
    value = bytearray(composite([(0, EOF, INIT, 0, plain_v1(MIB, [1]))]))
    struct.pack_into("<I", value, 32 + 24, 1 << 31)
    with pytest.raises(FormatError, match="component 1 past its end: byte 21474"):
        stripes_of_attribute(bytes(value))


@settings(max_examples=repeated(200, 3000), deadline=None)
@given(st.data())
def test_damaged_layouts_are_read_or_refused_but_nothing_else(data):
    value = bytearray(
        data.draw(st.sampled_from([PROGRESSIVE, plain_v3(MIB, [1, 2]), plain_v1(MIB, [7])]))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    value = value[: data.draw(st.integers(0, len(value)))] + data.draw(st.binary(max_size=40))
    try:
        stripes = stripes_of_attribute(bytes(value))
    except FormatError:
        return
    assert all(len(c.osts or ()) in {0, c.stripes.stripe_count} for c in stripes.components)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value):
    for magic in (0x0BD10BD0, 0x0BD30BD0, 0x0BD60BD0):
        try:
            stripes_of_attribute(struct.pack("<I", magic) + value)
        except FormatError:
            continue


def test_objects_are_24_bytes():
    assert len(objects([1, 2, 3])) == 72


# ---- lfs ----


def test_what_lfs_prints_is_read():
    assert stripes_of_lfs(LFS_PLAIN) == of(component(0, None, 4 * MIB, 1, 0))
    assert stripes_of_lfs(LFS_PROGRESSIVE) == of(
        component(0, MIB, MIB, count=1), component(MIB, None, MIB, 5, 9)
    )


def test_the_samples_are_yaml():
    """What is understood here is a part of YAML, read by a library elsewhere."""
    yaml = pytest.importorskip("yaml")
    plain = yaml.safe_load(LFS_PLAIN)
    assert [each["l_ost_idx"] for each in plain["lmm_objects"]] == [1, 0]
    body = LFS_PROGRESSIVE[LFS_PROGRESSIVE.index("components:") :]
    second = yaml.safe_load(body)["components"][1]["sub_layout"]
    assert [each[i]["l_ost_idx"] for i, each in enumerate(second["lmm_objects"])] == [5, 9]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "says nothing about stripes: nothing"),
        ("error: getstripe failed for x", "says nothing about stripes: error"),
        ("lmm_stripe_count:  1\n", "stripe size of 0"),
        (LFS_PLAIN.replace("4194304", "4194305"), "no multiple of 64 KiB"),
        (LFS_PLAIN.replace("4194304", "9" * 40), "which is no number"),
        (LFS_PLAIN.replace("l_ost_idx: 0", "l_ost_idx: 99999999"), "OSTs make no sense"),
        (LFS_PLAIN.replace("count:  2", "count:  3"), "2 OSTs are named for 3 stripes"),
        (LFS_PLAIN.replace("raid0", "released,raid0"), "released to an archive"),
        (LFS_PLAIN.replace("raid0", "raid5"), "a pattern that is not known here, 'raid5'"),
        (LFS_PLAIN.replace("lmm_layout_gen", "lmm_stripe_size"), "lmm_stripe_size twice"),
        (LFS_PROGRESSIVE.replace("init", "init,stale"), "none of its components"),
        (LFS_PROGRESSIVE.replace("e_end:   1048576", "e_end:   1048575"), "make no file"),
    ],
)
def test_what_lfs_should_not_print_is_refused(text, reason):
    with pytest.raises(FormatError, match=reason):
        stripes_of_lfs(text)


@settings(deadline=None)
@given(st.data())
def test_shuffled_answers_of_lfs_are_read_or_refused(data):
    lines = data.draw(st.permutations(LFS_PROGRESSIVE.splitlines()))
    lines = lines[: data.draw(st.integers(0, len(lines)))]
    try:
        stripes_of_lfs("\n".join(lines))
    except FormatError:
        return
