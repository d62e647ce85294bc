#include "replica_map.h"

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

bool PieceList::allocate()
{
    if (!memory_.allocate(static_cast<int64_t>(2 * most_ * sizeof(sds_piece)))) return false;
    pieces_ = reinterpret_cast<sds_piece *>(memory_.bytes());
    return true;
}

void PieceList::sort()
{
    sds_pieces_sort(n_, pieces_, pieces_ + most_);
}

void PieceList::to_bytes(int64_t data_offset_bytes, int64_t element_bytes)
{
    for (size_t i = 0; i < n_; i++) {
        sds_piece &piece = pieces_[i];
        piece.offset = data_offset_bytes + piece.offset * element_bytes;
        piece.length *= element_bytes;
        piece.position *= element_bytes;
    }
}

bool PieceList::add_piece(int64_t offset, int64_t length)
{
    if (n_ > 0) {
        sds_piece &last = pieces_[n_ - 1];
        if (last.offset + last.length == offset) {
            last.length += length;
            n_elements_ += length;
            return true;
        }
    }
    if (n_ == most_) return false;
    pieces_[n_++] = {offset, length, n_elements_};
    n_elements_ += length;
    return true;
}

// Elements that follow each other on the last axis.
int64_t PieceList::add_row(int64_t offset, int64_t length, int64_t stride)
{
    if (stride == 1) return add_piece(offset, length) ? length : 0;
    int64_t n = 0;
    while (n < length && add_piece(offset + n * stride, 1))
        n++;
    return n;
}

int64_t PieceList::add(const ReplicaMap &map, int64_t offset, int64_t length)
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
