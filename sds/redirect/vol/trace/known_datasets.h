// Bare datasets that are traced and that no replica serves: as much as tracing a read takes. A
// program that reads tens of thousands in turn would have each described anew at every read.
#pragma once

#include <stdint.h>

#include "object.h"

namespace sds::vol
{

struct OpenDataset;

constexpr int most_known_rank = 4;

struct KnownDataset {
    const void *bare; // what HDF5 holds of it; nullptr: an empty place
    uint64_t extent;  // of all axes, in equal shares of the bits
    uint32_t trace_id;
    uint8_t rank;
    uint8_t window_log2; // of reads that gain nothing by the engine: fewer elements than there are
    bool by_engine_too;  // the engine may read it
    bool reads_boxes;
};

void extent_of(const KnownDataset &known, int64_t extent[most_known_rank]);

// Have it fetched from memory, meanwhile.
void expect_known(const void *bare);

// False where it is not known.
bool find_known(const void *bare, KnownDataset &out);

// With the lock held: what DatasetHandle takes out for a call and puts back after it. Only what can
// be told in so little is known.
void take_known(const void *bare);
void keep_known(const void *bare, const OpenDataset &dataset);

} // namespace sds::vol
