// Queries to the connector below, in the form that its callbacks want.
#pragma once

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"

namespace sds::vol
{

// The layer below writes results of any operation into the arguments; room for the greatest.
template <typename Args> struct Request {
    Args args;
    char room[64];
    explicit Request(decltype(Args::op_type) operation)
    {
        memset(static_cast<void *>(this), 0, sizeof *this);
        args.op_type = operation;
    }
};

// Room for a path: not on the stack, which may be a small thread's.
class PathBuffer
{
  public:
    PathBuffer() : text_(static_cast<char *>(malloc(PATH_MAX)))
    {
        if (text_) text_[0] = '\0';
    }
    ~PathBuffer() { free(text_); }
    PathBuffer(const PathBuffer &) = delete;
    PathBuffer &operator=(const PathBuffer &) = delete;

    char *text() { return text_; } // nullptr where memory is exhausted

  private:
    char *text_;
};

// The name by which the file that holds the object was opened; name has room for PATH_MAX. False
// where it is longer.
bool read_file_name(const Object &object, H5I_type_t type, char *name);

// HDF5's descriptor of a file that the native connector has opened through sec2; negative where it
// cannot be had.
int descriptor_of(const Object &file);

// The end of what HDF5 takes for allocated in a file of the native connector, from its beginning; 0
// where it cannot be had.
int64_t allocated_end_of(const Object &file);

// What HDF5 keeps of a dataset's chunks: so many at most, of so many bytes. False where it cannot
// be had.
bool chunk_cache_of(const Object &dataset, size_t &n_slots, size_t &n_bytes);

} // namespace sds::vol
