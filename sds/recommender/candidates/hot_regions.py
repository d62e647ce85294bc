"""Parts of a dataset where much of the time goes: boxes that a replica may be limited to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.analyzer import BoxGroup, group_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sds.geometry import Box

MAX_SPACE = 0.5
"""Share of a dataset: a part that takes more saves little space beside the whole."""

_MIN_WEIGHT = 0.1
_N_LEAVES = 48
# A part of a part is taken in its stead where so much of the weight lies in it.
_NEARLY_ALL = 0.95
# Two parts, one within the other, count as two where the outer one takes so much more space.
_MUCH_LARGER = 1.5


def costly_parts(
    boxes: Sequence[Box], seconds: Sequence[float], extent: tuple[int, ...], *, limit: int
) -> list[Box]:
    """Return boxes that hold much of the time in little of the space, the best first.

    Parameters
    ----------
    boxes, seconds
        Where reads lie, and what those reads take.
    extent
        Of the dataset.
    limit
        Boxes returned at most.

    Notes
    -----
    What is best is judged by seconds x (1 - space): the time that a replica of the part could save,
    less what as much of the dataset holds where reads lie everywhere.
    """
    given = [(box, s) for box, s in zip(boxes, seconds, strict=True) if s > 0 and box.n_elements]
    if not given or not extent:
        return []
    root = group_boxes([box for box, _ in given], [s for _, s in given], extent, n_leaves=_N_LEAVES)
    found = list(_parts(root, least=_MIN_WEIGHT * root.weight))
    found.sort(key=lambda group: (-group.weight * (1.0 - group.space), group.box.start))
    chosen: list[BoxGroup] = []
    for group in found:
        if len(chosen) < limit and not any(_are_alike(group, other) for other in chosen):
            chosen.append(group)
    return [group.box for group in chosen]


def _parts(group: BoxGroup, *, least: float) -> Iterator[BoxGroup]:
    """Yield the groups that are worth a replica of their own, each before its parts."""
    if group.weight < least:
        return
    keeps = any(part.weight >= _NEARLY_ALL * group.weight for part in group.parts)
    if group.space <= MAX_SPACE and not keeps:
        yield group
    for part in group.parts:
        yield from _parts(part, least=least)


def _are_alike(one: BoxGroup, other: BoxGroup) -> bool:
    """Return whether one box lies in the other and takes not much less space."""
    inner, outer = sorted((one, other), key=lambda group: group.space)
    return outer.box.covers(inner.box) and outer.space < _MUCH_LARGER * inner.space
