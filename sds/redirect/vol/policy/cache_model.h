// Which chunks of a dataset HDF5's cache would hold, decoded, had HDF5 read all.
//
// Of those that were asked for last, at least as many as there is room for: chunks count that were
// decoded since, whether they were asked for once or more often.
#pragma once

#include <stdint.h>

namespace sds::vol
{

struct CacheModel;

// room: chunks that the cache has room for. nullptr where there is none, there are too many to be
// followed, or memory is exhausted.
CacheModel *make_cache_model(int64_t room);
void release_cache_model(CacheModel *model);

// A read asks for the chunks from first to last, inclusive, on each axis.
struct Asked {
    int64_t n;      // chunks; 0: too many to be followed
    int64_t n_held; // of them
};
Asked ask_for(CacheModel &model, int32_t rank, const int64_t first[], const int64_t last[]);

} // namespace sds::vol
