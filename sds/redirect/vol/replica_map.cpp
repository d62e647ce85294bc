#include "replica_map.h"

#include <stdlib.h>

namespace sds::vol
{

ReplicaMap replica_map_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    int64_t stride[SDS_MAX_RANK]; // per axis of the source
    int64_t elements = 1;
    for (int32_t i = dataset.rank - 1; i >= 0; i--) {
        const int32_t axis = candidate.order[i];
        stride[axis] = elements;
        elements *= candidate.region_extent[axis];
    }
    ReplicaMap map = {0, {1}, {1}, 0};
    for (int32_t axis = 0; axis < dataset.rank; axis++) {
        const int32_t last = map.rank - 1;
        const int64_t extent = dataset.extent[axis];
        map.origin -= candidate.region_start[axis] * stride[axis];
        if (extent == 1) continue;
        if (map.rank > 0 && map.stride[last] == stride[axis] * extent) {
            map.extent[last] *= extent;
            map.stride[last] = stride[axis];
        } else {
            map.extent[map.rank] = extent;
            map.stride[map.rank++] = stride[axis];
        }
    }
    if (map.rank == 0) map.rank = 1; // a single element
    return map;
}

SegmentList::~SegmentList()
{
    free(segments_);
}

bool SegmentList::allocate()
{
    segments_ = static_cast<sds_segment *>(malloc(2 * most_ * sizeof(sds_segment)));
    return segments_;
}

void SegmentList::sort()
{
    sds_segments_sort(n_, segments_, segments_ + most_);
}

bool SegmentList::add_segment(int64_t offset, int64_t length)
{
    if (n_ > 0) {
        sds_segment &last = segments_[n_ - 1];
        if (last.offset + last.length == offset && length <= UINT32_MAX - last.length) {
            last.length += static_cast<uint32_t>(length);
            n_elements_ += length;
            return true;
        }
    }
    if (n_ == most_) return false;
    segments_[n_++] = {offset, static_cast<uint32_t>(length), static_cast<uint32_t>(n_elements_)};
    n_elements_ += length;
    return true;
}

// Elements that follow each other on the last axis.
int64_t SegmentList::add_row(int64_t offset, int64_t length, int64_t stride)
{
    if (stride == 1) return add_segment(offset, length) ? length : 0;
    int64_t n = 0;
    while (n < length && add_segment(offset + n * stride, 1))
        n++;
    return n;
}

int64_t SegmentList::add(const ReplicaMap &map, int64_t offset, int64_t length)
{
    const int32_t last = map.rank - 1;
    int64_t index[SDS_MAX_RANK];
    int64_t at = map.origin, rest = offset;
    for (int32_t axis = last; axis >= 0; axis--) {
        index[axis] = rest % map.extent[axis];
        rest /= map.extent[axis];
        at += index[axis] * map.stride[axis];
    }
    int64_t added = 0;
    while (added < length) {
        const int64_t in_row = map.extent[last] - index[last];
        const int64_t wanted = length - added < in_row ? length - added : in_row;
        const int64_t taken = add_row(at, wanted, map.stride[last]);
        added += taken;
        if (taken < wanted || added == length) break;
        at -= index[last] * map.stride[last];
        index[last] = 0;
        for (int32_t axis = last - 1; axis >= 0; axis--) { // to the next row
            at += map.stride[axis];
            if (++index[axis] < map.extent[axis]) break;
            at -= map.extent[axis] * map.stride[axis];
            index[axis] = 0;
        }
    }
    return added;
}

} // namespace sds::vol
