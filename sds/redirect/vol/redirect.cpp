#include "redirect.h"

#include <stdlib.h>
#include <string.h>

#include "candidate.h"
#include "chunked_transfer.h"
#include "config.h"
#include "conversion.h"
#include "decision_log.h"
#include "element_walk.h"
#include "error_stack.h"
#include "memory_layout.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_choice.h"
#include "original_file.h"
#include "prediction.h"
#include "replica.h"
#include "scattered.h"
#include "scattered_choice.h"
#include "transfer.h"
#include "type_digest.h"

namespace sds::vol
{

// Reads of one shape are decided alike: where the start lies hardly matters to the prediction,
// which costs as much as a small read.
struct Decision {
    sds_hyperslab shape; // its start counts for nothing
    uint64_t holders;    // partial candidates that hold what is read
    int32_t choice;      // of the candidates; by_hdf5, by_engine: the original
    uint32_t n_left;     // uses until it is made anew
};
constexpr int max_decisions = 4;
constexpr uint32_t uses_per_decision = 64;

struct Redirection {
    sds_table_dataset dataset;
    sds_candidate *candidates; // dataset.n_candidates of them; without a table none
    OriginalFile *original;    // held by the dataset's file; nullptr: HDF5 alone reads it
    sds_candidate itself;      // the original, where the engine may read it
    uint64_t partial;          // candidates that hold a part, one bit each
    uint32_t n_reads;          // counts shares
    uint32_t logged;           // reasons told already, one bit each
    bool deciding;             // a thread is using the decisions
    int n_decisions;
    Decision *decisions; // max_decisions of them, made for the first one: most datasets need none
    ScatteredChoices scattered;
};

namespace
{

// Why a read goes to the original.
enum Reason {
    served,
    read_by_engine,
    stale_source,
    collective_transfer,
    transformed,
    irregular_selection,
    foreign_space,
    refused_spaces,
    repeated_points,
    other_type,
    empty_selection,
    original_cheaper,
    not_held,
    boxes_alone,
    outside_share,
    replica_unusable,
    failed_transfer
};

constexpr const char *reason_text[] = {
    "a replica is predicted to be cheaper",
    "the original read by SDS's engine is predicted to be cheaper than through HDF5",
    "the source has changed, was removed or moved, or is being written",
    "the transfer is collective",
    "the transfer has a data transform",
    "the selection lies in the transfer's properties, or HDF5 does not list its elements",
    "the selection is of another extent than the dataset",
    "the selections reach outside, or are of different sizes",
    "the memory selection may name a point twice",
    "the memory type needs a conversion that SDS leaves to HDF5",
    "nothing is selected",
    "the original is predicted to be cheaper",
    "no replica holds all that is selected",
    "only replicas in chunks are there, which serve boxes alone",
    "the replica serves a share of the reads",
    "the replica cannot be used",
    "the replica could not be read",
};

void tell(const OpenDataset &dataset, Reason reason, const char *text = nullptr)
{
    if (!text) text = reason_text[reason];
    Redirection &redirection = *dataset.redirection;
    if (!decisions_are_logged() || (redirection.logged & (1U << reason))) return;
    // Where there is no table, HDF5 reads what it would have read.
    if (redirection.dataset.n_candidates == 0 && reason != read_by_engine) return;
    redirection.logged |= 1U << reason;
    const char *event = reason == read_by_engine ? "engine" : "original";
    log_decision(reason == served ? "served" : event, dataset.file_path, dataset.path, text);
}

int64_t original(const OpenDataset &dataset, Reason reason, const char *text = nullptr)
{
    tell(dataset, reason, text);
    return 0;
}

// How the table's description differs from the dataset; nullptr where it does not.
const char *find_difference(const Host &host, const sds_table_dataset &expected,
                            const sds_trace_dataset &found, hid_t type)
{
    uint32_t crc = 0;
    // Freshness is that of one file: what lies in others may change unseen.
    if (found.storage == SDS_STORAGE_VIRTUAL || found.storage == SDS_STORAGE_EXTERNAL ||
        found.storage == SDS_STORAGE_UNKNOWN)
        return "the dataset's values lie in other files";
    if (expected.rank != found.rank) return "the dataset's rank is not that of the table";
    for (int32_t axis = 0; axis < found.rank; axis++)
        if (expected.extent[axis] != found.extent[axis])
            return "the dataset's extent is not that of the table";
    if (expected.element_bytes != found.element_bytes || !type_crc32c(host, type, crc) ||
        crc != expected.type_crc32c)
        return "the dataset's type is not that of the table";
    return nullptr;
}

// What the transfer properties ask for beside moving bytes. They are seldom set.
Reason check_properties(const Host &host, hid_t dxpl)
{
    if (dxpl == 0 || dxpl == *host.default_dxpl) return served;
    SilenceKeeper silence(host); // there seldom is a transform to get
    ErrorStackKeeper keep(host);
    if (is_collective(host, dxpl)) return collective_transfer;
    return host.hdf5.H5Pget_data_transform(dxpl, nullptr, 0) > 0 ? transformed : served;
}

// HDF5 counts a selection in the extent of its own space, which need not be the dataset's.
bool is_of_extent(const Host &host, hid_t space, const sds_trace_dataset &stored)
{
    if (space == H5S_ALL) return true;
    hsize_t extent[SDS_MAX_RANK];
    if (host.hdf5.H5Sget_simple_extent_dims(space, extent, nullptr) != stored.rank) return false;
    for (int32_t axis = 0; axis < stored.rank; axis++)
        if (static_cast<int64_t>(extent[axis]) != stored.extent[axis]) return false;
    return true;
}

constexpr int32_t max_partial = 64; // partial candidates behind the first so many are not used

// The partial candidates that hold all that is selected, one bit each.
uint64_t holders_of(const Redirection &redirection, const sds_hyperslab &slab)
{
    uint64_t holders = 0;
    for (uint64_t left = redirection.partial; left != 0; left &= left - 1) {
        const int i = __builtin_ctzll(left);
        if (holds(redirection.candidates[i], slab)) holders |= uint64_t{1} << i;
    }
    return holders;
}

// The cheapest candidate that is cheaper than the original, or how the original is read.
int32_t predict_best(const Redirection &redirection, uint64_t holders, const sds_hyperslab &slab)
{
    const sds_table_dataset &dataset = redirection.dataset;
    int32_t best = by_hdf5;
    if (redirection.original && is_faster_by_engine(*redirection.original, dataset, slab))
        best = by_engine;
    if (dataset.n_candidates == 0) return best;
    double best_s = predict_original(dataset, slab);
    if (best == by_engine) {
        const double by_engine_s = predict_replica(dataset, redirection.itself, slab);
        if (by_engine_s >= 0 && by_engine_s < best_s) best_s = by_engine_s;
    }
    for (int32_t i = 0; i < dataset.n_candidates; i++) {
        const sds_candidate &candidate = redirection.candidates[i];
        if (is_partial(dataset, candidate) && (i >= max_partial || !(holders >> i & 1))) continue;
        const double predicted_s = predict_replica(dataset, candidate, slab);
        if (predicted_s < 0 || !(predicted_s < best_s)) continue;
        best_s = predicted_s;
        best = i;
    }
    return best;
}

bool is_of_shape(const sds_hyperslab &slab, const sds_hyperslab &shape)
{
    const size_t n = static_cast<size_t>(slab.rank) * sizeof(int64_t);
    return memcmp(slab.count, shape.count, n) == 0 && memcmp(slab.block, shape.block, n) == 0 &&
           memcmp(slab.stride, shape.stride, n) == 0;
}

// The decision for reads of this shape, made anew where it is due.
int32_t decide(Redirection &redirection, uint64_t holders, const sds_hyperslab &slab)
{
    if (!redirection.decisions)
        redirection.decisions = static_cast<Decision *>(calloc(max_decisions, sizeof(Decision)));
    if (!redirection.decisions) return predict_best(redirection, holders, slab);
    for (int i = 0; i < max_decisions; i++) {
        Decision &decision = redirection.decisions[i];
        if (decision.n_left == 0 || decision.holders != holders ||
            !is_of_shape(slab, decision.shape))
            continue;
        decision.n_left--;
        return decision.choice;
    }
    const int32_t choice = predict_best(redirection, holders, slab);
    redirection.decisions[redirection.n_decisions++ % max_decisions] = {slab, holders, choice,
                                                                        uses_per_decision};
    redirection.n_decisions %= max_decisions;
    return choice;
}

// What serves by a choice; nullptr: HDF5 reads the original.
const sds_candidate *candidate_of(const Redirection &redirection, int32_t choice)
{
    if (choice == by_engine) return &redirection.itself;
    return choice < 0 ? nullptr : &redirection.candidates[choice];
}

const sds_candidate *choose(Redirection &redirection, const sds_hyperslab &slab)
{
    if (is_one_run(redirection.dataset, slab) && config().engine != Engine::always) return nullptr;
    const uint64_t holders = holders_of(redirection, slab);
    int32_t choice;
    if (__atomic_test_and_set(&redirection.deciding, __ATOMIC_ACQUIRE)) {
        choice = predict_best(redirection, holders, slab); // another thread is at it
    } else {
        choice = decide(redirection, holders, slab);
        __atomic_clear(&redirection.deciding, __ATOMIC_RELEASE);
    }
    return candidate_of(redirection, choice);
}

// Why none was chosen for a box: told in the log, of no account otherwise.
Reason why_none(const Redirection &redirection, const sds_hyperslab &slab)
{
    if (!decisions_are_logged() || is_one_run(redirection.dataset, slab)) return original_cheaper;
    for (int32_t i = 0; i < redirection.dataset.n_candidates; i++)
        if (holds(redirection.candidates[i], slab)) return original_cheaper;
    return not_held;
}

// The same for elements that have to be listed.
Reason why_none(const Redirection &redirection, const ScatteredRead &read)
{
    if (!decisions_are_logged()) return original_cheaper;
    Reason reason = boxes_alone;
    for (int32_t i = 0; i < redirection.dataset.n_candidates; i++) {
        if (can_serve(redirection.candidates[i], read)) return original_cheaper;
        if (redirection.candidates[i].storage == SDS_TABLE_CONTIGUOUS) reason = not_held;
    }
    return reason;
}

// A share of 1000 serves every read; a smaller one is spread over the reads.
bool is_in_share(Redirection &redirection, const sds_candidate &candidate)
{
    const uint32_t n = __atomic_fetch_add(&redirection.n_reads, 1, __ATOMIC_RELAXED);
    return static_cast<int32_t>(n * 619U % 1000U) < candidate.shadow_permille;
}

// Read a contiguous replica by move(file).
template <typename Move> Reason read_file(const OpenReplica &replica, Move move)
{
    const ReplicaFile file(replica);
    if (!file.get()) return replica_unusable;
    return move(file.get()) && file.is_unchanged() ? served : failed_transfer;
}

// Read a replica in chunks by move(dataset).
template <typename Move> Reason read_dataset(const OpenReplica &replica, Move move)
{
    const ReplicaDataset &dataset = replica.dataset;
    if (!is_unchanged(dataset, replica.identity)) return replica_unusable;
    return move(dataset) && is_unchanged(dataset, replica.identity) ? served : failed_transfer;
}

// Have the engine read the original by in_file(file).
template <typename InFile> int64_t serve_itself(OpenDataset &dataset, InFile in_file)
{
    OriginalFile &file = *dataset.redirection->original;
    // A program's own writer in this process has what it has not written to the file yet.
    if (__atomic_load_n(&dataset.file->is_written, __ATOMIC_ACQUIRE))
        return original(dataset, stale_source);
    if (!may_be_read(file, end_of(dataset.description))) return 0;
    const OriginalReader reader(file);
    if (!reader.get()) return 0;
    if (!in_file(reader.get())) {
        count_failure(file); // it may have ended early, where HDF5 reads zeros
        return 0;
    }
    tell(dataset, read_by_engine);
    return SDS_SERVED_BY_ENGINE;
}

// Have what was chosen read: a file by in_file(file), a replica in chunks by in_chunks(dataset).
template <typename InFile, typename InChunks>
int64_t serve_from(OpenDataset &dataset, const sds_candidate &candidate, InFile in_file,
                   InChunks in_chunks)
{
    Redirection &redirection = *dataset.redirection;
    if (&candidate == &redirection.itself) return serve_itself(dataset, in_file);
    if (!is_fresh(*dataset.file)) return original(dataset, stale_source);
    if (!is_in_share(redirection, candidate)) return original(dataset, outside_share);
    const ReplicaUse use(*dataset.file, redirection.dataset, candidate);
    if (use.problem()) return original(dataset, replica_unusable, use.problem());
    const Reason outcome = candidate.storage == SDS_TABLE_CHUNKED
                               ? read_dataset(use.replica(), in_chunks)
                               : read_file(use.replica(), in_file);
    if (outcome == failed_transfer) count_failure(use.replica());
    if (outcome != served) return original(dataset, outcome);
    tell(dataset, served, candidate.path);
    return candidate.replica_id;
}

// Serve a read whose elements have to be listed: in the file, in memory, or to be converted on top
// of what lies there.
int64_t serve_scattered(const Object &object, OpenDataset &dataset, const Selection &selection,
                        const ReadRequest &request)
{
    const Host &host = *object.host;
    Redirection &redirection = *dataset.redirection;
    if ((request.file_space != H5S_ALL && request.file_space <= last_special_space) ||
        !can_walk(host))
        return original(dataset, irregular_selection);
    if (!is_of_extent(host, request.file_space, dataset.description))
        return original(dataset, foreign_space);
    ScatteredRead read;
    if (!describe_scattered(host, request.file_space, request.memory_space, selection, read))
        return original(dataset, refused_spaces);
    const Layouts layouts = {redirection.dataset, redirection.candidates, redirection.original,
                             redirection.itself};
    const sds_candidate *candidate =
        candidate_of(redirection, choose_scattered(host, redirection.scattered, layouts, read));
    if (!candidate) return original(dataset, why_none(redirection, read));
    if (candidate == &redirection.itself) tell(dataset, why_none(redirection, read));
    const Reason refusal = check_properties(host, request.dxpl);
    if (refusal != served) return original(dataset, refusal);
    const FileType type(object, request.dxpl);
    Conversion conversion;
    if (!plan_conversion(host, type.id(), redirection.dataset.element_bytes, request.memory_type,
                         request.dxpl, conversion))
        return original(dataset, other_type);
    if (!writes_once(host, read)) return original(dataset, repeated_points);
    return serve_from(
        dataset, *candidate,
        [&](sds_file *file) {
            return transfer_scattered(host, file, redirection.dataset, *candidate, read, conversion,
                                      request.buffer);
        },
        [](const ReplicaDataset &) { return false; }); // chosen are contiguous ones alone
}

// What the file's table says of the dataset; false where none of its reads are redirected.
bool read_table(const Host &host, const OpenDataset &dataset, hid_t type, Redirection &out)
{
    const sds_table *table = dataset.file->table;
    int32_t index = 0;
    sds_table_dataset &expected = out.dataset;
    if (sds_table_find(table, dataset.path, &index) != SDS_OK ||
        sds_table_dataset_at(table, index, &expected) != SDS_OK) {
        log_decision("original", dataset.file_path, dataset.path, "the table does not name it");
        return false;
    }
    const char *difference = find_difference(host, expected, dataset.description, type);
    if (difference) {
        log_decision("original", dataset.file_path, dataset.path, difference);
        return false;
    }
    out.candidates = static_cast<sds_candidate *>(
        calloc(static_cast<size_t>(expected.n_candidates), sizeof(sds_candidate)));
    bool complete = out.candidates && expected.n_candidates > 0;
    for (int32_t i = 0; complete && i < expected.n_candidates; i++)
        complete = sds_table_candidate_at(table, index, i, &out.candidates[i]) == SDS_OK;
    for (int32_t i = 0; complete && i < expected.n_candidates && i < max_partial; i++)
        if (is_partial(expected, out.candidates[i])) out.partial |= uint64_t{1} << i;
    return complete;
}

} // namespace

bool asks_for_collective(const Host &host, hid_t dxpl)
{
    constexpr int collective = 1; // H5FD_MPIO_COLLECTIVE
    if (dxpl == 0 || dxpl == *host.default_dxpl) return false;
    ErrorStackKeeper keep(host);
    int mode = 0;
    return host.hdf5.H5Pget_dxpl_mpio(dxpl, &mode) >= 0 && mode == collective;
}

Redirection *find_redirection(const Host &host, const OpenDataset &dataset, hid_t type)
{
    if (!dataset.file) return nullptr;
    const bool by_engine_too = may_be_read_by_engine(host, dataset, type);
    if (!dataset.file->table && !by_engine_too) return nullptr;
    auto *made = static_cast<Redirection *>(calloc(1, sizeof(Redirection)));
    if (!made) return nullptr;
    if (dataset.file->table && !read_table(host, dataset, type, *made)) {
        free(made->candidates);
        made->candidates = nullptr;
        made->dataset.n_candidates = 0;
        made->partial = 0;
    }
    if (by_engine_too) {
        if (made->dataset.n_candidates == 0) made->dataset = dataset_of_itself(dataset.description);
        made->original = dataset.file->original;
        made->itself = candidate_of_itself(dataset.description, made->dataset, made->candidates);
    }
    if (made->original || made->dataset.n_candidates > 0) return made;
    release_redirection(made);
    return nullptr;
}

void release_redirection(Redirection *redirection)
{
    free(redirection->decisions);
    free(redirection->candidates);
    free(redirection);
}

bool may_serve(Object &object, const OpenDataset &dataset, hid_t file_space)
{
    const Redirection *redirection = dataset.redirection;
    return redirection && (redirection->dataset.n_candidates > 0 ||
                           may_gain(object, file_space, dataset.window_elements));
}

int64_t serve_read(const Object &object, OpenDataset &dataset, const Selection &selection,
                   const ReadRequest &request)
{
    const Host &host = *object.host;
    Redirection &redirection = *dataset.redirection;
    // HDF5 refuses a read without a buffer.
    if (selection.n_elements == 0 || !request.buffer) return original(dataset, empty_selection);
    if (selection.kind != SDS_SELECT_ALL && selection.kind != SDS_SELECT_HYPERSLAB)
        return serve_scattered(object, dataset, selection, request);
    const sds_candidate *candidate = choose(redirection, selection.slab);
    if (!candidate) return original(dataset, why_none(redirection, selection.slab));
    if (candidate == &redirection.itself) tell(dataset, why_none(redirection, selection.slab));

    const Reason refusal = check_properties(host, request.dxpl);
    if (refusal != served) return original(dataset, refusal);
    if (!is_of_extent(host, request.file_space, dataset.description))
        return original(dataset, foreign_space);
    const FileType type(object, request.dxpl);
    Conversion conversion;
    MemoryLayout memory;
    if (!plan_conversion(host, type.id(), redirection.dataset.element_bytes, request.memory_type,
                         request.dxpl, conversion))
        return original(dataset, other_type);
    if (conversion.needs_background || !is_where_it_says(host, request.file_space, selection) ||
        !memory_layout_of(host, request.memory_space, dataset.description.extent, selection,
                          conversion.to_bytes, memory))
        return serve_scattered(object, dataset, selection, request);
    return serve_from(
        dataset, *candidate,
        [&](sds_file *file) {
            return transfer(host, file, redirection.dataset, *candidate, selection.slab, conversion,
                            memory, request.buffer);
        },
        [&](const ReplicaDataset &in_chunks) {
            return transfer_chunked(in_chunks, type.id(), redirection.dataset, *candidate,
                                    selection.slab, conversion, memory, request.buffer);
        });
}

} // namespace sds::vol
