#include "scattered_choice.h"

#include <stdlib.h>
#include <string.h>

#include "candidate.h"
#include "chunk_grid.h"
#include "element_walk.h"
#include "error_stack.h"
#include "latest.h"
#include "prediction.h"
#include "replica_map.h"

namespace sds::vol
{

struct ScatteredChoice {
    ScatteredChoice *next;
    sds_selection_kind kind;
    int32_t candidate; // chosen; negative: how the original is read
    int64_t n_elements;
    uint64_t candidates; // that hold all of it, one bit each
    uint32_t n_left;     // uses until it is made anew
    uint8_t size[];      // of the bounding box, as a power of two, by axis
};

namespace
{

constexpr int max_choices = 4;

constexpr uint32_t uses_per_choice = 16;
// So much of a selection is looked at, and for so long per layout.
constexpr size_t max_sampled = 512;
constexpr int64_t budget_ns = 20000;
constexpr double unpredictable = -1.0;
// What serving costs besides reading, measured with everything in the cache. What HDF5 spends on
// such reads, which is more, does not count: a chance is cheaper to lose than time.
constexpr double piece_s = 40e-9;
constexpr double element_s = 5e-9;

// The first runs of a selection. Not on the stack, which may be a small thread's.
struct Sample {
    int64_t n_elements; // of the whole selection
    size_t n;
    ElementRun runs[max_sampled];
    sds_extent extents[max_sampled]; // as they lie in the layout that is predicted
};

void take(const Host &host, const ScatteredRead &read, Sample &out)
{
    ElementWalk walk(host, read.file_space, read.n_elements);
    out.n_elements = read.n_elements;
    out.n = 0;
    while (out.n < max_sampled && walk.next(read.n_elements, out.runs[out.n]))
        out.n++;
}

// List the sample as it lies in an array; returns how many times the whole selection is greater
// than what is listed, 0 where nothing is.
double list_sample(const Sample &sample, const ReplicaMap &map, PieceList &out)
{
    for (size_t i = 0; i < sample.n; i++)
        if (out.add(map, sample.runs[i].offset, sample.runs[i].length) < sample.runs[i].length)
            break;
    out.sort();
    return out.n_elements() == 0
               ? 0
               : static_cast<double>(sample.n_elements) / static_cast<double>(out.n_elements());
}

// Byte ranges of sorted pieces, those that touch or overlap in one.
size_t extents_of(const PieceList &list, const sds_array &array, sds_extent out[])
{
    size_t n = 0;
    for (size_t i = 0; i < list.n(); i++) {
        const sds_piece &piece = list.pieces()[i];
        const int64_t offset = array.offset_bytes + piece.offset * array.element_bytes;
        const int64_t end = offset + piece.length * array.element_bytes;
        if (n > 0 && offset <= out[n - 1].offset + out[n - 1].length) {
            if (end > out[n - 1].offset + out[n - 1].length)
                out[n - 1].length = end - out[n - 1].offset;
        } else {
            out[n++] = {offset, end - offset};
        }
    }
    return n;
}

int64_t times(int64_t n, double factor)
{
    const double product = static_cast<double>(n) * factor;
    return product < 4e18 ? static_cast<int64_t>(product) : INT64_C(4000000000000000000);
}

void scale(sds_features &features, double factor)
{
    if (factor <= 1) return;
    features.runs = times(features.runs, factor);
    features.bytes_useful = times(features.bytes_useful, factor);
    sds_bounds *const bounds[] = {&features.block_depth, &features.block_gap_count,
                                  &features.block_gap_distance, &features.bytes_touched};
    for (sds_bounds *each : bounds) {
        each->low = times(each->low, factor);
        each->high = times(each->high, factor);
    }
}

double predict_listed(const PieceList &list, double factor, const sds_array &array,
                      const sds_file_layout &layout, const sds_cost_model &model, Sample &sample)
{
    sds_features features;
    const size_t n = extents_of(list, array, sample.extents);
    if (n == 0 || sds_features_of_extents(n, sample.extents, &layout.striping, &layout.raid,
                                          budget_ns, &features) != SDS_OK)
        return unpredictable;
    scale(features, factor);
    return predict_seconds(model, features, features.block_gap_distance.high);
}

double predict_candidate(const sds_table_dataset &dataset, const sds_candidate &candidate,
                         Sample &sample)
{
    PieceList list(max_sampled);
    if (!list.allocate()) return unpredictable;
    const double factor = list_sample(sample, replica_map_of(dataset, candidate), list);
    const double read_s = predict_listed(list, factor, array_of(dataset, candidate),
                                         candidate.layout, candidate.model, sample);
    if (read_s < 0) return unpredictable;
    return read_s + static_cast<double>(list.n()) * factor * piece_s +
           static_cast<double>(sample.n_elements) * element_s;
}

double predict_contiguous(const sds_table_dataset &dataset, Sample &sample)
{
    sds_array array = {};
    array.element_bytes = dataset.element_bytes;
    array.offset_bytes = dataset.data_offset_bytes;
    ReplicaMap itself = {1, {1}, {1}, 0};
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        itself.extent[0] *= dataset.extent[axis];
    PieceList list(max_sampled);
    if (!list.allocate()) return unpredictable;
    const double factor = list_sample(sample, itself, list);
    if (factor == 1 && list.n() == 1) return 0; // in one piece: no replica reads less
    return predict_listed(list, factor, array, dataset.layout, dataset.model, sample);
}

// ---- chunked originals

// Chunks that the sample touches, and how far it reaches on one axis.
class ChunkCount
{
  public:
    ChunkCount(const sds_table_dataset &dataset, int32_t axis)
        : dataset_(dataset), shape_(dataset.chunks.shape), list_(2 * max_sampled), axis_(axis),
          lowest_(INT64_MAX), highest_(-1), n_rows_(0), n_elements_(0)
    {
    }
    bool allocate() { return list_.allocate(); }
    bool add(const ElementRun &run); // false where no more can be counted
    int64_t n();
    int64_t layers() const { return highest_ - lowest_ + 1; }
    int64_t n_elements() const { return n_elements_; } // in what was counted

  private:
    bool add_row(const int64_t index[], int64_t length);

    const sds_table_dataset &dataset_;
    const int64_t *shape_; // of a chunk
    PieceList list_;       // of chunks, by number
    const int32_t axis_;
    int64_t lowest_, highest_; // layers of chunks on that axis
    size_t n_rows_;
    int64_t n_elements_;
};

// Elements that follow each other on the last axis.
bool ChunkCount::add_row(const int64_t index[], int64_t length)
{
    const int32_t last = dataset_.rank - 1;
    int64_t number = 0;
    for (int32_t axis = 0; axis <= last; axis++)
        number =
            number * ((dataset_.extent[axis] - 1) / shape_[axis] + 1) + index[axis] / shape_[axis];
    const int64_t n = (index[last] + length - 1) / shape_[last] - index[last] / shape_[last] + 1;
    const int64_t layer = index[axis_] / shape_[axis_];
    const int64_t last_layer = axis_ == last ? layer + n - 1 : layer;
    if (layer < lowest_) lowest_ = layer;
    if (last_layer > highest_) highest_ = last_layer;
    const ReplicaMap numbers = {1, {INT64_MAX}, {1}, 0};
    if (++n_rows_ > 2 * max_sampled || list_.add(numbers, number, n) < n) return false;
    n_elements_ += length;
    return true;
}

bool ChunkCount::add(const ElementRun &run)
{
    int64_t index[SDS_MAX_RANK], rest = run.offset;
    for (int32_t axis = dataset_.rank - 1; axis >= 0; axis--) {
        index[axis] = rest % dataset_.extent[axis];
        rest /= dataset_.extent[axis];
    }
    const int32_t last = dataset_.rank - 1;
    for (int64_t done = 0; done < run.length;) {
        const int64_t in_row = dataset_.extent[last] - index[last];
        const int64_t n = run.length - done < in_row ? run.length - done : in_row;
        if (!add_row(index, n)) return false;
        done += n;
        index[last] = 0;
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            if (++index[axis] < dataset_.extent[axis]) break;
            index[axis] = 0;
        }
    }
    return true;
}

int64_t ChunkCount::n()
{
    list_.sort();
    int64_t n = 0, end = 0;
    for (size_t i = 0; i < list_.n(); i++) {
        const sds_piece &piece = list_.pieces()[i];
        const int64_t last = piece.offset + piece.length;
        const int64_t first = piece.offset > end ? piece.offset : end;
        if (last > first) n += last - first;
        if (last > end) end = last;
    }
    return n;
}

// Never more chunks than the whole selection touches, as far as can be told: an original that
// looks cheaper than it is costs a chance, one that looks dearer costs time.
double predict_chunked(const sds_table_dataset &dataset, const ScatteredRead &read,
                       const Sample &sample)
{
    ChunkGrid grid;
    if (dataset.storage != SDS_TABLE_CHUNKED || !grid_of(dataset, grid)) return unpredictable;
    // Layers of chunks that the bounding box has on the first axis on which it has several.
    int32_t axis = 0;
    int64_t layers = 1, in_box = 1;
    for (int32_t i = 0; i < dataset.rank; i++) {
        const int64_t n = read.high[i] / grid.shape[i] - read.low[i] / grid.shape[i] + 1;
        if (layers == 1) axis = i, layers = n;
        if (__builtin_mul_overflow(in_box, n, &in_box)) return unpredictable;
    }
    ChunkCount chunks(dataset, axis);
    if (!chunks.allocate()) return unpredictable;
    for (size_t i = 0; i < sample.n; i++)
        if (!chunks.add(sample.runs[i])) break;
    if (chunks.n_elements() == 0) return unpredictable;
    const double by_elements =
        static_cast<double>(sample.n_elements) / static_cast<double>(chunks.n_elements());
    const double by_layers = static_cast<double>(layers) / static_cast<double>(chunks.layers());
    const double factor = by_elements < by_layers ? by_elements : by_layers;
    int64_t n_chunks = factor > 1 ? times(chunks.n(), factor) : chunks.n();
    if (n_chunks > in_box) n_chunks = in_box;
    return predict_chunks(grid, n_chunks, sample.n_elements, dataset.layout, dataset.model);
}

// Whether it is plain that a replica reads no less than a contiguous original. Neighbours in a run
// of the original lie a stride apart in the replica; where all that is selected is less than that,
// no two of them are in one piece. What has long runs is told without a prediction, which would
// cost more than the read.
bool is_plainly_worse(const ReplicaMap &map, const Sample &sample)
{
    const int32_t last = map.rank - 1;
    if (sample.n == max_sampled || map.stride[last] <= sample.n_elements) return false;
    int64_t longest = 0;
    for (size_t i = 0; i < sample.n; i++)
        if (sample.runs[i].length > longest) longest = sample.runs[i].length;
    if (longest > map.extent[last]) longest = map.extent[last];
    return longest >= static_cast<int64_t>(sample.n);
}

bool may_pay(const sds_table_dataset &dataset, const sds_candidate &candidate,
             const ScatteredRead &read, const Sample &sample)
{
    return can_serve(candidate, read) &&
           (dataset.storage != SDS_TABLE_CONTIGUOUS ||
            !is_plainly_worse(replica_map_of(dataset, candidate), sample));
}

int32_t choose_for_original(const Layouts &layouts, Sample &sample)
{
    PieceList list(max_sampled);
    if (!layouts.original || !list.allocate()) return by_hdf5;
    const double factor =
        list_sample(sample, replica_map_of(layouts.dataset, layouts.itself), list);
    if (factor == 0) return by_hdf5;
    list.to_bytes(layouts.itself.data_offset_bytes, layouts.dataset.element_bytes);
    return choose_for_original(*layouts.original, layouts.dataset,
                               {sample.n, sample.runs, list, factor});
}

int32_t find_best(const Layouts &layouts, const ScatteredRead &read, Sample &sample)
{
    const sds_table_dataset &dataset = layouts.dataset;
    int32_t best = choose_for_original(layouts, sample);
    int32_t first = 0;
    while (first < dataset.n_candidates &&
           !may_pay(dataset, layouts.candidate(first), read, sample))
        first++;
    if (first == dataset.n_candidates) return best;
    double best_s = dataset.storage == SDS_TABLE_CONTIGUOUS
                        ? predict_contiguous(dataset, sample)
                        : predict_chunked(dataset, read, sample);
    if (is_by_engine(best)) {
        const double by_engine_s = predict_candidate(dataset, layouts.itself, sample);
        if (by_engine_s >= 0 && by_engine_s < best_s) best_s = by_engine_s;
    }
    for (int32_t i = first; i < dataset.n_candidates; i++) {
        const sds_candidate candidate = layouts.candidate(i);
        if (i > first && !may_pay(dataset, candidate, read, sample)) continue;
        const double predicted_s = predict_candidate(dataset, candidate, sample);
        if (predicted_s < 0 || !(predicted_s < best_s)) continue;
        best_s = predicted_s;
        best = i;
    }
    return best;
}

int32_t predict_best(const Host &host, const Layouts &layouts, const ScatteredRead &read)
{
    auto *sample = static_cast<Sample *>(malloc(sizeof(Sample)));
    if (!sample) return by_hdf5;
    {
        SilenceKeeper silence(host);
        ErrorStackKeeper keep(host);
        take(host, read, *sample);
    }
    const int32_t best = find_best(layouts, read, *sample);
    free(sample);
    return best;
}

uint8_t power_of_two(int64_t n)
{
    return static_cast<uint8_t>(64 - __builtin_clzll(static_cast<unsigned long long>(n)));
}

uint8_t size_of(const ScatteredRead &read, int32_t axis)
{
    return power_of_two(read.high[axis] - read.low[axis] + 1);
}

// The candidates that hold all of it. Where partial replicas are, they tell reads apart as well.
uint64_t holders_of(const Layouts &layouts, const ScatteredRead &read)
{
    uint64_t holders = 0;
    for (int32_t i = 0; i < layouts.dataset.n_candidates && i < 64; i++)
        if (can_serve(layouts.candidate(i), read)) holders |= UINT64_C(1) << i;
    return holders;
}

// What tells a read from others without listing its elements.
bool is_for(const ScatteredChoice &made, const ScatteredRead &read, uint64_t holders, int32_t rank)
{
    if (made.n_left == 0 || made.kind != read.kind || made.n_elements != read.n_elements ||
        made.candidates != holders)
        return false;
    for (int32_t axis = 0; axis < rank; axis++)
        if (made.size[axis] != size_of(read, axis)) return false;
    return true;
}

void remember(ScatteredChoices &choices, const ScatteredRead &read, uint64_t holders, int32_t rank,
              int32_t candidate)
{
    ScatteredChoice *made = put_in_front(choices.newest, max_choices,
                                         sizeof(ScatteredChoice) + static_cast<size_t>(rank));
    if (!made) return;
    made->kind = read.kind;
    made->candidate = candidate;
    made->n_elements = read.n_elements;
    made->candidates = holders;
    made->n_left = uses_per_choice;
    for (int32_t axis = 0; axis < rank; axis++)
        made->size[axis] = size_of(read, axis);
}

} // namespace

bool can_serve(const sds_candidate &candidate, const ScatteredRead &read)
{
    if (candidate.storage != SDS_TABLE_CONTIGUOUS || candidate.tiles.n > 0) return false;
    for (int32_t axis = 0; axis < candidate.rank; axis++)
        if (read.low[axis] < candidate.region_start[axis] ||
            read.high[axis] - candidate.region_start[axis] >= candidate.region_extent[axis])
            return false;
    return true;
}

void release_choices(ScatteredChoices &choices)
{
    free_all(choices.newest);
}

int32_t choose_scattered(const Host &host, ScatteredChoices &choices, const Layouts &layouts,
                         const ScatteredRead &read)
{
    if (__atomic_test_and_set(&choices.busy, __ATOMIC_ACQUIRE)) // another thread is at it
        return predict_best(host, layouts, read);
    const uint64_t holders = holders_of(layouts, read);
    const int32_t rank = layouts.dataset.rank;
    ScatteredChoice *found = choices.newest;
    while (found && !is_for(*found, read, holders, rank))
        found = found->next;
    int32_t candidate;
    if (found) {
        found->n_left--;
        candidate = found->candidate;
    } else {
        candidate = predict_best(host, layouts, read);
        remember(choices, read, holders, rank, candidate);
    }
    __atomic_clear(&choices.busy, __ATOMIC_RELEASE);
    // Beyond the candidates that are told apart, one may have been chosen for a like read.
    if (candidate >= 0 && !can_serve(layouts.candidate(candidate), read)) return by_hdf5;
    return candidate;
}

} // namespace sds::vol
