// Which reads of a contiguous original the core's engine carries out instead of HDF5.
#pragma once

#include "element_walk.h"
#include "layouts.h"
#include "original_file.h"
#include "replica_map.h"
#include "sds/table_format.h"

namespace sds::vol
{

struct OpenDataset;
struct StoredDataset;

// Choices beside the candidates of a table, which are counted from 0.
constexpr int32_t by_hdf5 = -1;
constexpr int32_t by_engine = -2;
constexpr int32_t by_engine_if_cached = -3; // else by HDF5
constexpr bool is_by_engine(int32_t choice)
{
    return choice < by_hdf5;
}

// Whether the dataset's bytes are those that HDF5 would make elements of: in one piece of the file,
// not filtered, of a type without references. type: the dataset's.
bool may_be_read_by_engine(const Host &host, const OpenDataset &dataset, hid_t type);

// What a table would say of the dataset, and of the original as a replica of itself: where the
// table has measured reads by the engine, with the model of its candidates. The result points into
// stored.
sds_table_dataset dataset_of_itself(const StoredDataset &stored);
sds_candidate candidate_of_itself(const StoredDataset &stored, const Layouts &layouts);

// The first byte behind the dataset's.
int64_t end_of(const StoredDataset &stored);

// How many elements HDF5's sieve buffer holds: what spans no more, it reads with one request.
int64_t window_elements_of(const OriginalFile &file, const StoredDataset &stored);

// So few elements are not worth a second look.
constexpr int64_t min_elements = 17;

// False for reads that the engine cannot carry out faster: few elements, what lies in one piece,
// and what spans no more than so many elements. A look from outside.
bool may_gain(Object &object, hid_t file_space, int64_t window_elements);

// The same where reads are not counted, as those of a bare dataset are not.
bool may_gain(const Host &host, hid_t file_space, int64_t window_elements);

// Whether it is the first read of its file that could gain, and HDF5 carries it out with so few
// requests that to describe the dataset would take as long: programs that read many small files
// once come no further. Of a dataset that is not described yet; counts the read as judged.
bool is_first_and_small(const Object &object, hid_t file_space);

// As may_gain of a read that HDF5 has carried out, by the indices of its first and last elements:
// for the next one.
void look_behind(Object &object, const OpenDataset &dataset, int64_t n_elements,
                 const int64_t first[], const int64_t last[]);

// Who reads the original, and whether that hangs on what is mapped at the moment: then it is soon
// to be asked again.
struct OriginalChoice {
    int32_t of; // of the three above
    bool is_for_now;
};
OriginalChoice choose_for_original(OriginalFile &file, const sds_table_dataset &dataset,
                                   const sds_hyperslab &slab);

// A part of a selection: its runs in HDF5's order, the same sorted and joined, and how many times
// greater the whole is.
struct SampledRuns {
    size_t n;
    const ElementRun *runs;
    const PieceList &sorted; // in bytes
    double factor;
};
int32_t choose_for_original(OriginalFile &file, const sds_table_dataset &dataset,
                            const SampledRuns &sample);

} // namespace sds::vol
