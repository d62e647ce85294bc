// Where elements of a source lie in a contiguous replica.
#pragma once

#include "scratch.h"
#include "sds/read_types.h"
#include "sds/table_format.h"

namespace sds::vol
{

// Axes of the source, in its order; those that are neighbours in the replica too count as one.
struct ReplicaMap {
    int32_t rank; // at least 1
    int64_t extent[SDS_MAX_RANK];
    int64_t stride[SDS_MAX_RANK]; // in the replica, elements
    int64_t origin;               // where the source's first element would lie
};

// For elements inside the candidate's box.
ReplicaMap replica_map_of(const sds_table_dataset &dataset, const sds_candidate &candidate);

// A bounded list of what to read of the replica, positions counted as elements are added. All in
// elements, until to_bytes().
class PieceList
{
  public:
    explicit PieceList(size_t most) : most_(most), n_(0), n_elements_(0), pieces_(nullptr) {}
    PieceList(const PieceList &) = delete;
    PieceList &operator=(const PieceList &) = delete;

    bool allocate(); // false where memory is exhausted
    // Add the source's elements from one on, in C order; returns how many there was room for.
    int64_t add(const ReplicaMap &map, int64_t offset, int64_t length);
    void sort();
    // From now on offsets in the replica's file, in bytes, and so on; until clear().
    void to_bytes(int64_t data_offset_bytes, int64_t element_bytes);
    void clear() { n_ = 0, n_elements_ = 0; }

    size_t n() const { return n_; }
    int64_t n_elements() const { return n_elements_; }
    const sds_piece *pieces() const { return pieces_; }

  private:
    int64_t add_row(int64_t offset, int64_t length, int64_t stride);
    bool add_piece(int64_t offset, int64_t length);

    const size_t most_;
    size_t n_;
    int64_t n_elements_;
    Scratch memory_;
    sds_piece *pieces_; // and as many again, for sorting
};

} // namespace sds::vol
