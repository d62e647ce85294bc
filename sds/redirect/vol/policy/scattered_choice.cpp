#include "scattered_choice.h"

#include <stdlib.h>
#include <string.h>

#include "element_walk.h"
#include "error_stack.h"
#include "latest.h"
#include "replica_map.h"

namespace sds::vol
{

struct ScatteredChoice {
    ScatteredChoice *next;
    sds_selection_kind kind;
    bool active_only;  // as of the layouts
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
// So much of a selection is looked at.
constexpr size_t max_sampled = 512;

// The first runs of a selection. Not on the stack, which may be a small thread's.
struct Sample {
    int64_t n_elements; // of the whole selection
    size_t n;
    ElementRun runs[max_sampled];
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

// A sample as it lies in one layout after the other.
struct Lister {
    const Layouts &layouts;
    const ScatteredRead &read;
    const Sample &sample;
    PieceList list;

    double operator()(int32_t choice, size_t *n, const sds_piece **pieces)
    {
        const sds_table_dataset &dataset = layouts.dataset;
        const sds_candidate candidate = choice < 0 ? layouts.itself : layouts.candidate(choice);
        if (choice >= 0 && layouts.active_only && candidate.shadow_permille < 1000) return 0;
        if (choice >= 0 && !may_pay(dataset, candidate, read, sample)) return 0;
        list.clear();
        const double factor = list_sample(sample, replica_map_of(dataset, candidate), list);
        list.to_bytes(candidate.data_offset_bytes, dataset.element_bytes);
        *n = list.n();
        *pieces = list.pieces();
        return factor;
    }
};

double list_in_layout(void *context, int32_t choice, size_t *n, const sds_piece **pieces)
{
    return (*static_cast<Lister *>(context))(choice, n, pieces);
}

sds_cache look_at_list(const ReadToChoose &read, sds_file *file, int32_t choice)
{
    size_t n = 0;
    const sds_piece *pieces = nullptr;
    const double factor = list_in_layout(read.listed, choice, &n, &pieces);
    return factor > 0 ? sds_probe_pieces(file, n, pieces) : SDS_CACHE_UNKNOWN;
}

Choice predict_best(const Host &host, const OpenDataset &dataset, const Layouts &layouts,
                    const ScatteredRead &read)
{
    auto *sample = static_cast<Sample *>(malloc(sizeof(Sample)));
    if (!sample) return {SDS_BY_HDF5, uses_per_choice};
    {
        SilenceKeeper silence(host);
        ErrorStackKeeper keep(host);
        take(host, read, *sample);
    }
    Lister lister = {layouts, read, *sample, PieceList(max_sampled)};
    int32_t best = SDS_BY_HDF5, hangs_on = 0;
    if (lister.list.allocate()) {
        const ReadToChoose to_choose = {dataset, layouts, nullptr, look_at_list, &lister};
        sds_choose_given given = given_of(to_choose);
        given.n_judged = nullptr;
        const sds_listed_read listed = {read.n_elements, read.low,       read.high, sample->n,
                                        sample->runs,    list_in_layout, &lister};
        best = sds_choose_listed(&layouts, &listed, &given, &hangs_on);
    }
    free(sample);
    const uint32_t n_uses = sds_choice_uses(best, hangs_on);
    return {best, n_uses < uses_per_choice ? n_uses : uses_per_choice};
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
bool is_for(const ScatteredChoice &made, const Layouts &layouts, const ScatteredRead &read,
            uint64_t holders)
{
    if (made.n_left == 0 || made.active_only != layouts.active_only || made.kind != read.kind ||
        made.n_elements != read.n_elements || made.candidates != holders)
        return false;
    for (int32_t axis = 0; axis < layouts.dataset.rank; axis++)
        if (made.size[axis] != size_of(read, axis)) return false;
    return true;
}

void remember(ScatteredChoices &choices, const Layouts &layouts, const ScatteredRead &read,
              uint64_t holders, Choice choice)
{
    const int32_t rank = layouts.dataset.rank;
    ScatteredChoice *made = put_in_front(choices.newest, max_choices,
                                         sizeof(ScatteredChoice) + static_cast<size_t>(rank));
    if (!made) return;
    made->kind = read.kind;
    made->active_only = layouts.active_only;
    made->candidate = choice.of;
    made->n_elements = read.n_elements;
    made->candidates = holders;
    made->n_left = choice.n_uses;
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

void expire_choices(ScatteredChoices &choices)
{
    if (__atomic_test_and_set(&choices.busy, __ATOMIC_ACQUIRE)) return;
    for (ScatteredChoice *each = choices.newest; each; each = each->next)
        if (each->candidate == SDS_BY_ENGINE_IF_CACHED) each->n_left = 0;
    __atomic_clear(&choices.busy, __ATOMIC_RELEASE);
}

int32_t choose_scattered(const Host &host, const OpenDataset &dataset, ScatteredChoices &choices,
                         const Layouts &layouts, const ScatteredRead &read)
{
    if (__atomic_test_and_set(&choices.busy, __ATOMIC_ACQUIRE)) // another thread is at it
        return predict_best(host, dataset, layouts, read).of;
    const uint64_t holders = holders_of(layouts, read);
    ScatteredChoice *found = choices.newest;
    while (found && !is_for(*found, layouts, read, holders))
        found = found->next;
    int32_t candidate;
    if (found) {
        found->n_left--;
        candidate = found->candidate;
    } else {
        const Choice made = predict_best(host, dataset, layouts, read);
        candidate = made.of;
        remember(choices, layouts, read, holders, made);
    }
    __atomic_clear(&choices.busy, __ATOMIC_RELEASE);
    // Beyond the candidates that are told apart, one may have been chosen for a like read.
    if (candidate >= 0 && !can_serve(layouts.candidate(candidate), read)) return SDS_BY_HDF5;
    return candidate;
}

} // namespace sds::vol
