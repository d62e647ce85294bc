#include "layouts.h"

#include "config.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_choice.h"
#include "replica.h"
#include "source_freshness.h"

namespace sds::vol
{
namespace
{

void plan_given(void *context, sds_plan_given *out)
{
    OriginalFile *original = static_cast<const ReadToChoose *>(context)->layouts.original;
    if (!original) return;
    const OriginalReader reader(*original);
    if (reader.get()) sds_file_given(reader.get(), out);
}

sds_cache probe_original(const ReadToChoose &read)
{
    OriginalFile *original = read.layouts.original;
    if (!original || !may_be_read(*original, end_of(read.dataset.description)))
        return SDS_CACHE_UNKNOWN;
    const OriginalReader reader(*original);
    return reader.get() ? read.look(read, reader.get(), SDS_BY_ENGINE) : SDS_CACHE_UNKNOWN;
}

sds_cache probe(void *context, int32_t choice)
{
    const auto &read = *static_cast<const ReadToChoose *>(context);
    if (choice < 0) return probe_original(read);
    if (!is_fresh(*read.dataset.file)) return SDS_CACHE_UNKNOWN;
    const sds_candidate candidate = read.layouts.candidate(choice);
    // One that does not serve is neither checked nor kept open.
    const OpenReplica *known = find_replica(*read.dataset.file, candidate);
    if (known && known->problem) return SDS_CACHE_UNKNOWN;
    const OpenReplica unknown = replica_to_probe(candidate);
    const ReplicaFile file(known ? *known : unknown);
    return file.get() ? read.look(read, file.get(), choice) : SDS_CACHE_UNKNOWN;
}

sds_cache look_at_box(const ReadToChoose &read, sds_file *file, int32_t choice)
{
    const Layouts &layouts = read.layouts;
    const sds_candidate candidate = choice < 0 ? layouts.itself : layouts.candidate(choice);
    sds_hyperslab stored;
    sds_array array;
    sds_runs runs;
    sds_candidate_array(&candidate, &layouts.dataset, &array);
    if (sds_candidate_slab(&candidate, read.slab, &stored) != SDS_OK ||
        sds_runs_of(&array, &stored, &runs) != SDS_OK)
        return SDS_CACHE_UNKNOWN;
    return sds_probe_runs(file, &runs);
}

} // namespace

sds_choose_given given_of(const ReadToChoose &read)
{
    sds_choose_given given = {};
    given.n_processes = config().n_ranks;
    given.active_only = read.layouts.active_only;
    given.engine_always = config().engine == Engine::always;
    if (OriginalFile *file = read.dataset.file->original) given.parameters = costs_of(*file);
    if (OriginalFile *original = read.layouts.original) {
        given.engine_reads_original = 1;
        // Without a buffer, HDF5 reads each run alone.
        given.sieve_bytes = original->sieve_bytes > 0 ? original->sieve_bytes : 1;
        given.n_judged = &original->n_judged;
    }
    given.plan_given = plan_given;
    given.probe = probe;
    given.context = const_cast<ReadToChoose *>(&read);
    return given;
}

Choice choose_box(const OpenDataset &dataset, const Layouts &layouts, const sds_hyperslab &slab)
{
    const ReadToChoose read = {dataset, layouts, &slab, look_at_box, nullptr};
    const sds_choose_given given = given_of(read);
    sds_read_costs costs = {};
    const int32_t of = sds_choose(&layouts, &slab, &given, &costs);
    return {of, sds_choice_uses(of, costs.hangs_on), sds_cold_s(&costs.by_hdf5)};
}

} // namespace sds::vol
