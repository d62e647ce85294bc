"""Arrays, selections of them and chunks, drawn for laws."""

from itertools import pairwise

from hypothesis import strategies as st

from sds.geometry import ChunkedLayout, Hyperslab


@st.composite
def arrays_and_selections(draw):
    """Draw an extent and a selection that lies in it."""
    extent = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    axes = []
    for length in extent:
        block = draw(st.integers(1, length))
        stride = draw(st.integers(block, 2 * length))
        count = draw(st.integers(1, (length - block) // stride + 1))
        start = draw(st.integers(0, length - (count - 1) * stride - block))
        axes.append((start, stride, count, block))
    start, stride, count, block = zip(*axes, strict=True)
    return extent, Hyperslab(start=start, stride=stride, count=count, block=block)


@st.composite
def chunked_reads(draw):
    """Draw an extent, a selection and chunks of two bytes or more in any axis order."""
    extent, slab = draw(arrays_and_selections())
    order = tuple(draw(st.permutations(range(len(extent)))))
    layout = ChunkedLayout(
        element_size_bytes=4,
        chunk_shape=tuple(draw(st.integers(1, extent[axis])) for axis in order),
        data_offset_bytes=draw(st.integers(0, 64)),
        order=draw(st.sampled_from((order, None))) if order == tuple(range(len(order))) else order,
        stored_chunk_bytes=draw(st.integers(2, 6)),
    )
    return extent, slab, layout


def skips_unevenly(slab, layout):
    """Return whether steps over whole chunks lead to chunks that are not equally far apart."""
    stored = slab if layout.order is None else slab.permuted(layout.order)
    for (start, stride, count, block), chunk in zip(stored.axes(), layout.chunk_shape, strict=True):
        begins = [start + i * stride for i in range(count)]
        touched = [(begin // chunk, (begin + block - 1) // chunk) for begin in begins]
        steps = {b[0] - a[0] for a, b in pairwise(touched)}
        lengths = {last - first for first, last in touched}
        if stride - block >= chunk and (len(steps) > 1 or len(lengths) > 1):
            return True
    return False
