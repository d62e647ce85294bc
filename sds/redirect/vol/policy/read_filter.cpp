#include "read_filter.h"

#include "config.h"
#include "original_choice.h"
#include "own_chunks.h"
#include "redirect.h"
#include "selection.h"

namespace sds::vol
{
namespace
{

// HDF5 makes this many requests while a dataset is described and its first read is served.
constexpr int64_t few_requests = 32;
// Of elements that nobody has described yet.
constexpr int64_t usual_element_bytes = 8;

// Elements from the first to the last that is selected, in the C order of the space; 0 where that
// cannot be told.
int64_t span_of(const Functions &hdf5, hid_t space)
{
    hsize_t extent[SDS_MAX_RANK], low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    if (hdf5.H5Sselect_valid(space) <= 0) return 0; // has been moved out of the space
    const int rank = hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    if (rank <= 0 || hdf5.H5Sget_select_bounds(space, low, high) < 0) return 0;
    hsize_t first = 0, last = 0;
    for (int axis = 0; axis < rank; axis++) {
        first = first * extent[axis] + low[axis];
        last = last * extent[axis] + high[axis];
    }
    return static_cast<int64_t>(last - first + 1);
}

// Whether it is of several runs that span more elements than the bound. Of what is no dataspace
// HDF5 prints that, where it is asked anything but what it is.
bool is_worth_predicting(const Host &host, hid_t space, int64_t window_elements)
{
    if (!is_selection(host, space)) return false; // HDF5 says so
    const hssize_t n = host.hdf5.H5Sget_select_npoints(space);
    if (n < min_elements) return false;
    const int64_t span = span_of(host.hdf5, space);
    return span > n && span > window_elements;
}

// Have a read of a compressed original seen, by the bounds of what it selects.
Span see_read(const Host &host, OwnChunks &chunks, const StoredDataset &stored, hid_t space)
{
    hsize_t low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    int64_t first[SDS_MAX_RANK], last[SDS_MAX_RANK], n_spanned = 1;
    const bool is_all = space == H5S_ALL;
    hssize_t n_elements = 0;
    if (!is_all && (space <= last_special_space || !is_selection(host, space) ||
                    host.hdf5.H5Sget_simple_extent_ndims(space) != stored.rank ||
                    (n_elements = host.hdf5.H5Sget_select_npoints(space)) < 1 ||
                    host.hdf5.H5Sselect_valid(space) <= 0 ||
                    host.hdf5.H5Sget_select_bounds(space, low, high) < 0)) {
        miss_read(chunks);
        return Span::held_by_cache;
    }
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        first[axis] = is_all ? 0 : static_cast<int64_t>(low[axis]);
        last[axis] = is_all ? stored.extent[axis] - 1 : static_cast<int64_t>(high[axis]);
        n_spanned *= last[axis] - first[axis] + 1;
    }
    return see_span(chunks, stored, first, last, is_all || n_elements == n_spanned);
}

// A read was looked at. Where it could gain after it could have been passed over, as many small
// ones in a row say little of the next: then it takes four times as many.
void count_look(SmallReads &reads, bool may_gain)
{
    const uint32_t n = __atomic_load_n(&reads.in_a_row, __ATOMIC_RELAXED);
    const uint32_t patience = patience_of(reads);
    if (!may_gain && n < patience) __atomic_store_n(&reads.in_a_row, n + 1, __ATOMIC_RELAXED);
    if (!may_gain) return;
    __atomic_store_n(&reads.in_a_row, 0U, __ATOMIC_RELAXED);
    if (n >= patience && patience < most_patience)
        __atomic_store_n(&reads.patience, 4 * patience - least_patience, __ATOMIC_RELAXED);
}

} // namespace

bool gains_nothing(const Host &host, hid_t file_space, int64_t window_elements)
{
    if (config().engine == Engine::always) return false;
    return file_space <= last_special_space || // everything, in one piece
           !is_worth_predicting(host, file_space, window_elements);
}

bool gains_nothing(Object &object, const OpenDataset *dataset, hid_t file_space)
{
    if (dataset && !may_be_served(*dataset)) return true;
    OwnChunks *chunks = dataset ? own_chunks_of(*dataset) : nullptr;
    const Span span = chunks ? see_read(*object.host, *chunks, dataset->description, file_space)
                             : Span::held_by_cache;
    if (dataset ? has_replicas(*dataset) : any_tables()) return false;
    if (!any_originals()) return true;
    const bool nothing =
        chunks ? span != Span::decoded_perhaps
               : gains_nothing(*object.host, file_space, dataset ? dataset->window_elements : 0);
    if (config().engine != Engine::always && file_space > last_special_space)
        count_look(object.small_reads, chunks ? span != Span::held_by_cache : !nothing);
    return nothing || (!dataset && is_first_and_small(object, file_space));
}

void see_read(const Object &object, const OpenDataset &dataset, hid_t file_space)
{
    if (OwnChunks *chunks = own_chunks_of(dataset))
        see_read(*object.host, *chunks, dataset.description, file_space);
}

bool is_first_and_small(const Object &object, hid_t file_space)
{
    OriginalFile *file = object.file ? object.file->original : nullptr;
    if (!file || config().engine == Engine::always ||
        __atomic_load_n(&file->n_judged, __ATOMIC_RELAXED) > 0)
        return false;
    const int64_t n = object.hdf5().H5Sget_select_npoints(file_space);
    const int64_t window = window_bytes_of(*file) / usual_element_bytes;
    if (n > few_requests && span_of(object.hdf5(), file_space) / window >= few_requests)
        return false;
    return __atomic_fetch_add(&file->n_judged, 1, __ATOMIC_RELAXED) == 0;
}

void look_behind(Object &object, const OpenDataset &dataset, int64_t n_elements,
                 const int64_t first[], const int64_t last[])
{
    if (!dataset.redirection || !are_many(object.small_reads)) return;
    const StoredDataset &stored = dataset.description;
    uint64_t behind = 0; // from the first to the last
    int64_t n_in_box = 1;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        behind = behind * static_cast<uint64_t>(stored.extent[axis]) +
                 static_cast<uint64_t>(last[axis] - first[axis]);
        n_in_box *= last[axis] - first[axis] + 1;
    }
    const auto span = static_cast<int64_t>(behind + 1);
    OwnChunks *chunks = own_chunks_of(dataset);
    if (chunks
            ? see_span(*chunks, stored, first, last, n_in_box == n_elements) != Span::held_by_cache
            : span > n_elements && span > dataset.window_elements)
        count_look(object.small_reads, true);
}

} // namespace sds::vol
