// Which reads of a contiguous original the core's engine carries out instead of HDF5.
#pragma once

#include "original_file.h"
#include "sds/table_format.h"

namespace sds::vol
{

struct OpenDataset;
struct StoredDataset;

// Whether the dataset's bytes are those that HDF5 would make elements of: in one piece of the file,
// not filtered, of a type without references. type: the dataset's.
bool may_be_read_by_engine(const Host &host, const OpenDataset &dataset, hid_t type);

// What a table would say of the dataset, and of an original as a replica of itself. The
// result points into stored.
sds_table_dataset dataset_of_itself(const StoredDataset &stored);
sds_candidate candidate_of_itself(const StoredDataset &stored, const sds_table_dataset &dataset);

// The first byte behind the dataset's.
int64_t end_of(const StoredDataset &stored);

// HDF5's sieve buffer, in bytes and in elements: what spans no more, it reads with one request.
int64_t window_bytes_of(const OriginalFile &file);
int64_t window_elements_of(const OriginalFile &file, const StoredDataset &stored);

} // namespace sds::vol
