#include "original_choice.h"

#include <string.h>

#include "config.h"
#include "open_dataset.h"
#include "open_file.h"
#include "sds/choose.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

constexpr int32_t own_order[SDS_MAX_RANK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                             11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                             22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
constexpr int64_t own_start[SDS_MAX_RANK] = {};

int64_t product_of(int32_t n, const int64_t factors[])
{
    int64_t product = 1;
    for (int32_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, factors[i], &product)) return -1;
    return product;
}

} // namespace

int64_t window_bytes_of(const OriginalFile &file)
{
    return sds_window_bytes(file.sieve_bytes);
}

int64_t end_of(const StoredDataset &stored)
{
    int64_t end = product_of(stored.rank, stored.extent);
    if (end < 0 || __builtin_mul_overflow(end, stored.element_bytes, &end) ||
        __builtin_add_overflow(end, stored.data_offset_bytes, &end))
        return INT64_MAX;
    return end;
}

// Whether all of it lies in what HDF5 reads with one request, so that no read gains by the engine.
bool is_within_window(const OriginalFile &file, const StoredDataset &stored)
{
    const int64_t n = product_of(stored.rank, stored.extent);
    return stored.element_bytes > 0 && n >= 0 && n <= window_elements_of(file, stored);
}

bool may_be_read_by_engine(const Host &host, const OpenDataset &dataset, hid_t type)
{
    const StoredDataset &stored = dataset.description;
    const OriginalFile *file = dataset.file->original;
    if (file && config().engine != Engine::always && is_within_window(*file, stored)) return false;
    return file && stored.storage == SDS_STORAGE_CONTIGUOUS && stored.data_offset_bytes >= 0 &&
           stored.n_filters == 0 && stored.rank > 0 && stored.element_bytes > 0 &&
           product_of(stored.rank, stored.extent) > 0 && end_of(stored) <= file->end &&
           has_digest(host, type);
}

sds_table_dataset dataset_of_itself(const StoredDataset &stored)
{
    sds_table_dataset dataset = {};
    dataset.path = stored.path;
    dataset.rank = stored.rank;
    dataset.extent = stored.extent;
    dataset.element_bytes = stored.element_bytes;
    dataset.type_class = stored.type_class;
    dataset.storage = stored.chunk ? SDS_TABLE_CHUNKED : SDS_TABLE_CONTIGUOUS;
    dataset.data_offset_bytes = stored.data_offset_bytes;
    dataset.chunks.shape = stored.chunk;
    return dataset;
}

sds_candidate candidate_of_itself(const StoredDataset &stored, const sds_table_dataset &dataset)
{
    sds_candidate itself = {};
    itself.path = stored.file;
    itself.storage = stored.chunk ? SDS_TABLE_CHUNKED : SDS_TABLE_CONTIGUOUS;
    itself.data_offset_bytes = stored.data_offset_bytes;
    itself.chunks.shape = stored.chunk;
    itself.rank = stored.rank;
    itself.order = own_order;
    itself.region_start = own_start;
    itself.region_extent = stored.extent;
    itself.layout = dataset.layout;
    itself.model = dataset.model;
    return itself;
}

int64_t window_elements_of(const OriginalFile &file, const StoredDataset &stored)
{
    return window_bytes_of(file) / stored.element_bytes;
}

} // namespace sds::vol
