// The elements of a selection in the order in which HDF5 pairs those of file and memory.
#pragma once

#include "host.h"
#include "sds/geometry.h"

namespace sds::vol
{

// Neighbouring elements of a dataspace, counted in C order of its extent.
using ElementRun = sds_extent;

// Walks what a dataspace selects, whatever the selection is. The dataspace must stay as it is.
// Holds a bounded list of runs, which HDF5's own iterator fills; not on the stack, which may be a
// small thread's.
class ElementWalk
{
  public:
    // space: of a valid selection, or H5S_ALL for a packed array of n_elements.
    ElementWalk(const Host &host, hid_t space, int64_t n_elements);
    ~ElementWalk();
    ElementWalk(const ElementWalk &) = delete;
    ElementWalk &operator=(const ElementWalk &) = delete;

    // The next run, of a bounded number of elements; false at the end, and where HDF5 fails.
    bool next(int64_t most, ElementRun &out);
    int64_t n_left() const { return n_left_; }

  private:
    bool fill();

    static constexpr size_t max_listed = 256;
    const Host &host_;
    hid_t iterator_; // negative: there is none
    int64_t n_left_;
    size_t n_listed_;
    size_t at_;
    struct List {
        hsize_t offset[max_listed];
        size_t length[max_listed];
    };
    List *list_; // nullptr where memory is exhausted: there is no next run
};

// True where the host has the iterator.
bool can_walk(const Host &host);

} // namespace sds::vol
