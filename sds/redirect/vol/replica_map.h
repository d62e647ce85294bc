// Where elements of a source lie in a contiguous replica.
#pragma once

#include "sds/gather.h"
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

// A bounded list of what to read of the replica, positions counted as elements are added.
class SegmentList
{
  public:
    explicit SegmentList(size_t most) : most_(most), n_(0), n_elements_(0), segments_(nullptr) {}
    ~SegmentList();
    SegmentList(const SegmentList &) = delete;
    SegmentList &operator=(const SegmentList &) = delete;

    bool allocate(); // false where memory is exhausted
    // Add the source's elements from one on, in C order; returns how many there was room for.
    int64_t add(const ReplicaMap &map, int64_t offset, int64_t length);
    void sort();
    void clear() { n_ = 0, n_elements_ = 0; }

    size_t n() const { return n_; }
    int64_t n_elements() const { return n_elements_; }
    const sds_segment *segments() const { return segments_; }

  private:
    int64_t add_row(int64_t offset, int64_t length, int64_t stride);
    bool add_segment(int64_t offset, int64_t length);

    const size_t most_;
    size_t n_;
    int64_t n_elements_;
    sds_segment *segments_; // and as many again, for sorting
};

} // namespace sds::vol
