"""Layouts of replicas, for tests."""

from sds.geometry import Box, Filter, ReplicaLayout

GZIP = (Filter(code=1, name="deflate", options=(4,)),)


def replica(order, *, extent=None, chunk_shape=None, filters=(), region=None):
    """Return a layout; of all of a dataset of an extent, or of a region of it."""
    return ReplicaLayout(
        order=order,
        chunk_shape=chunk_shape,
        filters=filters,
        region=Box.whole(extent) if region is None else region,
    )
