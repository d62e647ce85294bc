#include "redirect.h"

#include <stdlib.h>
#include <string.h>

#include "cancellation.h"
#include "chunked_transfer.h"
#include "clock.h"
#include "config.h"
#include "conversion.h"
#include "decision_log.h"
#include "element_walk.h"
#include "error_stack.h"
#include "kept_chunks.h"
#include "latest.h"
#include "memory_layout.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_choice.h"
#include "original_file.h"
#include "own_chunks.h"
#include "reasons.h"
#include "replica.h"
#include "scattered.h"
#include "scattered_choice.h"
#include "sds/tiles.h"
#include "shadow_share.h"
#include "source_freshness.h"
#include "table_entry.h"
#include "transfer.h"

namespace sds::vol
{

// The partial candidates that hold what is read. Reads of one shape touch more tiles or fewer,
// which counts for what they cost.
struct Holders {
    uint64_t candidates; // one bit each
    uint64_t n_pieces;   // that they take of their tiles: of each, in one number

    bool operator==(const Holders &other) const
    {
        return candidates == other.candidates && n_pieces == other.n_pieces;
    }
};

// Reads of one shape are decided alike: where the start lies hardly matters to the prediction,
// which costs as much as a small read.
struct Decision {
    Decision *next;
    Holders holders;
    bool active_only; // as of the layouts
    Choice choice;    // n_uses: until it is made anew
    int64_t shape[];  // counts, blocks and strides
};
constexpr int max_decisions = 8;

// Kept for every dataset that is open: what the table says is looked up in it.
struct Redirection {
    Decision *newest;           // the latest decisions
    ScatteredChoices scattered; // and of reads that are no box
    KeptChunks *kept;           // nullptr: HDF5's cache does not hold all of the dataset
    OwnChunks *own;             // of a compressed original; nullptr: HDF5 decodes them
    uint64_t partial;           // candidates that hold a part, one bit each
    uint64_t in_shadow;         // candidates that serve a share of their reads, one bit each
    int32_t index;              // in the file's table
    int32_t n_candidates;       // 0: no table names it
    uint32_t logged;            // reasons told already, one bit each
    bool by_engine_too;         // the engine may read the original
    bool is_contiguous;         // the original
    bool deciding;              // a thread is using the decisions
};

namespace
{

void tell(const OpenDataset &dataset, Reason reason, const char *text = nullptr)
{
    if (!text) text = text_of(reason);
    Redirection &redirection = *dataset.redirection;
    if (!decisions_are_logged() || (redirection.logged & (1U << reason))) return;
    // Where there is no table, HDF5 reads what it would have read.
    const bool by_engine = reason == read_by_engine || reason == decoded_by_core;
    if (redirection.n_candidates == 0 && !by_engine) return;
    redirection.logged |= 1U << reason;
    const char *event = by_engine ? "engine" : "original";
    log_decision(reason == served ? "served" : event, dataset.description.file,
                 dataset.description.path, text);
}

int64_t original(const OpenDataset &dataset, Reason reason, const char *text = nullptr)
{
    tell(dataset, reason, text);
    return 0;
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
bool is_of_extent(const Host &host, hid_t space, const StoredDataset &stored)
{
    if (space == H5S_ALL) return true;
    hsize_t extent[SDS_MAX_RANK];
    if (host.hdf5.H5Sget_simple_extent_dims(space, extent, nullptr) != stored.rank) return false;
    for (int32_t axis = 0; axis < stored.rank; axis++)
        if (static_cast<int64_t>(extent[axis]) != stored.extent[axis]) return false;
    return true;
}

// What the dataset may be read from, for one read. active_only: not from replicas in shadow.
Layouts layouts_of(const OpenDataset &dataset, bool active_only = false)
{
    const Redirection &redirection = *dataset.redirection;
    Layouts layouts = {};
    layouts.table = dataset.file->table;
    layouts.index = redirection.index;
    layouts.active_only = active_only;
    if (redirection.n_candidates > 0)
        sds_table_dataset_at(layouts.table, layouts.index, &layouts.dataset);
    else
        layouts.dataset = dataset_of_itself(dataset.description);
    layouts.itself = candidate_of_itself(dataset.description, layouts.dataset);
    if (redirection.by_engine_too) layouts.original = dataset.file->original;
    return layouts;
}

sds_candidate candidate_of(const OpenDataset &dataset, int32_t i)
{
    sds_candidate candidate;
    sds_table_candidate_at(dataset.file->table, dataset.redirection->index, i, &candidate);
    return candidate;
}

Holders holders_of(const OpenDataset &dataset, const sds_hyperslab &slab)
{
    Holders holders = {0, 0};
    for (uint64_t left = dataset.redirection->partial; left != 0; left &= left - 1) {
        const int i = __builtin_ctzll(left);
        const sds_candidate candidate = candidate_of(dataset, i);
        if (!sds_candidate_holds(&candidate, &slab)) continue;
        holders.candidates |= uint64_t{1} << i;
        if (candidate.tiles.n > 0)
            holders.n_pieces = holders.n_pieces * (SDS_MAX_TILES_OF_READ + 1) +
                               static_cast<uint64_t>(sds_tile_pieces(&candidate, &slab, nullptr));
    }
    return holders;
}

bool is_of_shape(const sds_hyperslab &slab, const int64_t shape[])
{
    const size_t n = static_cast<size_t>(slab.rank);
    return memcmp(slab.count, shape, n * sizeof(int64_t)) == 0 &&
           memcmp(slab.block, shape + n, n * sizeof(int64_t)) == 0 &&
           memcmp(slab.stride, shape + 2 * n, n * sizeof(int64_t)) == 0;
}

void remember(Redirection &redirection, const Holders &holders, const sds_hyperslab &slab,
              bool active_only, Choice choice)
{
    const size_t n = static_cast<size_t>(slab.rank);
    Decision *made =
        put_in_front(redirection.newest, max_decisions, sizeof(Decision) + 3 * n * sizeof(int64_t));
    if (!made) return;
    made->holders = holders;
    made->active_only = active_only;
    made->choice = choice;
    memcpy(made->shape, slab.count, n * sizeof(int64_t));
    memcpy(made->shape + n, slab.block, n * sizeof(int64_t));
    memcpy(made->shape + 2 * n, slab.stride, n * sizeof(int64_t));
}

// The decision for reads of this shape, made anew where it is due.
Choice decide(const OpenDataset &dataset, const Holders &holders, const sds_hyperslab &slab,
              bool active_only)
{
    Redirection &redirection = *dataset.redirection;
    for (Decision *decision = redirection.newest; decision; decision = decision->next)
        if (decision->choice.n_uses > 0 && decision->holders == holders &&
            decision->active_only == active_only && is_of_shape(slab, decision->shape)) {
            decision->choice.n_uses--;
            return decision->choice;
        }
    const Choice choice = choose_box(dataset, layouts_of(dataset, active_only), slab);
    remember(redirection, holders, slab, active_only, choice);
    return choice;
}

// What was found in memory is not there any more: have decide() look anew.
void expire(Redirection &redirection)
{
    if (redirection.n_candidates == 0) return;
    expire_choices(redirection.scattered);
    if (__atomic_test_and_set(&redirection.deciding, __ATOMIC_ACQUIRE)) return;
    for (Decision *decision = redirection.newest; decision; decision = decision->next)
        if (decision->choice.of == SDS_BY_ENGINE_IF_CACHED) decision->choice.n_uses = 0;
    __atomic_clear(&redirection.deciding, __ATOMIC_RELEASE);
}

bool is_in_one_run(const OpenDataset &dataset, const sds_hyperslab &slab)
{
    return dataset.redirection->is_contiguous && sds_is_one_run(dataset.description.extent, &slab);
}

// Apart: most reads lie in one run and come no further.
__attribute__((noinline)) Choice predict_or_remember(const OpenDataset &dataset,
                                                     const sds_hyperslab &slab, bool active_only)
{
    Redirection &redirection = *dataset.redirection;
    const Holders holders = holders_of(dataset, slab);
    if (__atomic_test_and_set(&redirection.deciding, __ATOMIC_ACQUIRE))
        return choose_box(dataset, layouts_of(dataset, active_only), slab); // another thread's
    const Choice choice = decide(dataset, holders, slab, active_only);
    __atomic_clear(&redirection.deciding, __ATOMIC_RELEASE);
    return choice;
}

Choice choose(const OpenDataset &dataset, const sds_hyperslab &slab)
{
    const Redirection &redirection = *dataset.redirection;
    if (redirection.n_candidates == 0 && !redirection.by_engine_too) return {SDS_BY_HDF5, 0, 0};
    if (is_in_one_run(dataset, slab) && config().engine != Engine::always)
        return {SDS_BY_HDF5, 0, 0};
    return predict_or_remember(dataset, slab, false);
}

// The choice, where HDF5 would read, with the core to decode what it may.
Choice with_own_chunks(const OpenDataset &dataset, const sds_hyperslab &slab, Choice choice)
{
    OwnChunks *own = choice.of == SDS_BY_HDF5 ? own_chunks_of(dataset) : nullptr;
    if (own) choice.n_threads = threads_to_decode(*own, dataset.description, slab);
    if (choice.n_threads > 0) choice.of = SDS_BY_ENGINE;
    return choice;
}

// Why none was chosen for a box: told in the log, of no account otherwise.
Reason why_none(const OpenDataset &dataset, const sds_hyperslab &slab)
{
    if (!decisions_are_logged() || is_in_one_run(dataset, slab)) return original_cheaper;
    const sds_table_dataset entry = layouts_of(dataset).dataset;
    Reason reason = not_held;
    for (int32_t i = 0; i < entry.n_candidates; i++) {
        const sds_candidate candidate = candidate_of(dataset, i);
        if (!sds_candidate_holds(&candidate, &slab)) continue;
        if (!sds_candidate_has_large_chunks(&candidate, &entry)) return original_cheaper;
        reason = large_chunks;
    }
    return reason;
}

// The same for elements that have to be listed.
Reason why_none(const OpenDataset &dataset, const ScatteredRead &read)
{
    if (!decisions_are_logged()) return original_cheaper;
    Reason reason = boxes_alone;
    for (int32_t i = 0; i < dataset.redirection->n_candidates; i++) {
        const sds_candidate candidate = candidate_of(dataset, i);
        if (can_serve(candidate, read)) return original_cheaper;
        if (candidate.storage == SDS_TABLE_CONTIGUOUS && candidate.tiles.n == 0) reason = not_held;
    }
    return reason;
}

// Deal a read for which a replica in shadow may have been chosen. Returns whether that leaves it to
// what would serve it without replicas in shadow.
bool leaves_alone(const OpenDataset &dataset, int32_t choice, Deal &deal)
{
    if (deal.is_done || choice < 0 || !(dataset.redirection->in_shadow >> choice & 1)) return false;
    const sds_candidate candidate = candidate_of(dataset, choice);
    deal.is_done = true;
    if (is_in_share(candidate.shadow_permille)) return false;
    deal.left_by = candidate.replica_id;
    tell(dataset, outside_share);
    return true;
}

// Read a contiguous replica by move(file, announced).
template <typename Move> Reason read_file(OpenReplica &replica, Move move)
{
    const ReplicaFile file(replica);
    if (!file.get()) return replica_unusable;
    return move(file.get(), replica.announced) && file.is_unchanged() ? served : failed_transfer;
}

// Read a replica in chunks by move(dataset).
template <typename Move> Reason read_dataset(const OpenReplica &replica, Move move)
{
    const ReplicaDataset &dataset = replica.dataset;
    if (!is_unchanged(dataset, replica.identity)) return replica_unusable;
    const Transferred outcome = move(dataset);
    if (outcome == Transferred::no_room) return decoding_elsewhere;
    if (outcome == Transferred::not_kept) return decoded_again;
    const bool is_right = outcome == Transferred::all && is_unchanged(dataset, replica.identity);
    return is_right ? served : failed_transfer;
}

// Have the engine read the original by in_file(file, nullptr): it has no segments. only_cached:
// what the page cache lacks is left to HDF5.
template <typename InFile>
int64_t serve_itself(OpenDataset &dataset, bool only_cached, InFile in_file)
{
    OriginalFile &file = *dataset.file->original;
    // A program's own writer in this process has what it has not written to the file yet.
    if (__atomic_load_n(&dataset.file->is_written, __ATOMIC_ACQUIRE))
        return original(dataset, stale_source);
    if (!may_be_read(file, end_of(dataset.description))) return 0;
    const OriginalReader reader(file);
    if (!reader.get()) return 0;
    if (!in_file(reader.get(), nullptr)) {
        if (only_cached)
            expire(*dataset.redirection);
        else
            count_failure(file); // it may have ended early, where HDF5 reads zeros
        return 0;
    }
    tell(dataset, read_by_engine);
    return SDS_SERVED_BY_ENGINE;
}

// Have the core decode the original's chunks by in_chunks(dataset).
template <typename InChunks>
int64_t serve_own_chunks(const Object &object, OpenDataset &dataset, int32_t n_threads,
                         InChunks in_chunks)
{
    OwnChunks &own = *dataset.redirection->own;
    // A program's own writer in this process has chunks that it has not written to the file yet.
    if (__atomic_load_n(&dataset.file->is_written, __ATOMIC_ACQUIRE))
        return original(dataset, stale_source);
    OriginalFile &file = *dataset.file->original;
    if (!may_be_read(file, 0)) return 0;
    const CancellationKeeper keeper; // others decode into what this thread's stack names
    const ReplicaDataset itself = {object.host, object.under, nullptr,       0, 0, own.filters,
                                   true,        n_threads,    &file.compared};
    const Transferred outcome = in_chunks(itself);
    // What HDF5 reads otherwise, or not at all, it is to read from now on.
    if (outcome == Transferred::failed) {
        __atomic_store_n(&own.is_left, true, __ATOMIC_RELAXED);
        count_failure(file);
    }
    if (outcome != Transferred::all) return 0;
    tell(dataset, decoded_by_core);
    return SDS_SERVED_BY_ENGINE;
}

// What was chosen to serve a read.
struct Server {
    int32_t choice;
    int32_t n_threads; // as of Choice
    sds_table_dataset dataset;
    sds_candidate candidate;

    bool by_engine() const { return choice < SDS_BY_HDF5; }
    bool only_cached() const { return choice == SDS_BY_ENGINE_IF_CACHED; }

    Server(const OpenDataset &open, int32_t chosen, int32_t threads = 0)
        : choice(chosen), n_threads(threads)
    {
        if (by_engine()) {
            const Layouts layouts = layouts_of(open);
            dataset = layouts.dataset;
            candidate = layouts.itself;
        } else {
            sds_table_dataset_at(open.file->table, open.redirection->index, &dataset);
            candidate = candidate_of(open, choice);
        }
    }
};

// Have what was chosen read: a file by in_file(file, announced), a replica in chunks by
// in_chunks(dataset). slab: what is read, nullptr where elements are listed.
template <typename InFile, typename InChunks>
int64_t serve_from(const Object &object, OpenDataset &dataset, const Server &server,
                   const sds_hyperslab *slab, InFile in_file, InChunks in_chunks)
{
    const sds_candidate &candidate = server.candidate;
    if (server.n_threads > 0) return serve_own_chunks(object, dataset, server.n_threads, in_chunks);
    if (server.by_engine()) return serve_itself(dataset, server.only_cached(), in_file);
    if (!is_fresh(*dataset.file)) return original(dataset, stale_source);
    const ReplicaUse use(*dataset.file, server.dataset, candidate, slab);
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
                        const ReadRequest &request, Deal &deal)
{
    const Host &host = *object.host;
    Redirection &redirection = *dataset.redirection;
    if (redirection.n_candidates == 0 && !redirection.by_engine_too) return 0;
    if ((request.file_space != H5S_ALL && request.file_space <= last_special_space) ||
        !can_walk(host))
        return original(dataset, irregular_selection);
    if (!is_of_extent(host, request.file_space, dataset.description))
        return original(dataset, foreign_space);
    ScatteredRead read;
    if (!describe_scattered(host, request.file_space, request.memory_space, selection, read))
        return original(dataset, refused_spaces);
    int32_t choice = choose_scattered(host, dataset, redirection.scattered,
                                      layouts_of(dataset, deal.left_by != 0), read);
    if (choice < 0) tell(dataset, why_none(dataset, read));
    if (choice == SDS_BY_HDF5) return 0;
    Server server(dataset, choice);
    const Reason refusal = check_properties(host, request.dxpl);
    if (refusal != served) return original(dataset, refusal);
    const FileType type(object);
    Conversion conversion;
    if (!plan_conversion(host, type.id(), server.dataset.element_bytes, request.memory_type,
                         request.dxpl, conversion))
        return original(dataset, other_type);
    if (!writes_once(host, read)) return original(dataset, repeated_points);
    if (leaves_alone(dataset, choice, deal)) {
        choice =
            choose_scattered(host, dataset, redirection.scattered, layouts_of(dataset, true), read);
        if (choice == SDS_BY_HDF5) return 0;
        server = Server(dataset, choice);
    }
    return serve_from(
        object, dataset, server, nullptr,
        [&](sds_file *file, uint8_t *) {
            return transfer_scattered(host, file, server.only_cached(), server.dataset,
                                      server.candidate, read, conversion, request.buffer);
        },
        [](const ReplicaDataset &) {
            return Transferred::failed;
        }); // chosen are contiguous ones alone
}

// Serve a box by what was chosen. Apart: most reads are HDF5's to carry out, and come no further.
__attribute__((noinline)) int64_t serve_box(const Object &object, OpenDataset &dataset,
                                            Choice choice, const Selection &selection,
                                            const ReadRequest &request, Deal &deal)
{
    const Host &host = *object.host;
    Server server(dataset, choice.of, choice.n_threads);

    const Reason refusal = check_properties(host, request.dxpl);
    if (refusal != served) return original(dataset, refusal);
    if (!is_of_extent(host, request.file_space, dataset.description))
        return original(dataset, foreign_space);
    const FileType type(object);
    Conversion conversion;
    MemoryLayout memory;
    if (!plan_conversion(host, type.id(), server.dataset.element_bytes, request.memory_type,
                         request.dxpl, conversion))
        return original(dataset, other_type);
    if (conversion.needs_background || !is_where_it_says(host, request.file_space, selection) ||
        !memory_layout_of(host, request.memory_space, dataset.description.extent, selection,
                          conversion.to_bytes, memory))
        return serve_scattered(object, dataset, selection, request, deal);
    if (leaves_alone(dataset, choice.of, deal)) {
        choice = with_own_chunks(dataset, selection.slab,
                                 predict_or_remember(dataset, selection.slab, true));
        if (choice.of == SDS_BY_HDF5) return 0;
        server = Server(dataset, choice.of, choice.n_threads);
    }
    return serve_from(
        object, dataset, server, &selection.slab,
        [&](sds_file *file, uint8_t *announced) {
            return transfer(host, file, server.only_cached(), announced, server.dataset,
                            server.candidate, selection.slab, conversion, memory, request.buffer);
        },
        [&](const ReplicaDataset &in_chunks) {
            return transfer_chunked(in_chunks, type.id(), server.dataset, server.candidate,
                                    selection.slab, conversion, memory, request.buffer);
        });
}

// Look the dataset up in the file's table. Without candidates none of its reads are redirected.
void look_up(const Host &host, const OpenDataset &dataset, hid_t type, Redirection &out)
{
    const sds_table *table = dataset.file->table;
    const StoredDataset &stored = dataset.description;
    int32_t index = 0;
    sds_table_dataset expected;
    if (sds_table_find(table, stored.path, &index) != SDS_OK ||
        sds_table_dataset_at(table, index, &expected) != SDS_OK) {
        log_decision("original", stored.file, stored.path, "the table does not name it");
        return;
    }
    const char *difference = find_difference(host, expected, stored, type);
    if (difference) {
        log_decision("original", stored.file, stored.path, difference);
        return;
    }
    if (expected.n_candidates == 0) return;
    out.index = index;
    out.n_candidates = expected.n_candidates;
    out.is_contiguous = expected.storage == SDS_TABLE_CONTIGUOUS;
    sds_candidate candidate;
    for (int32_t i = 0; i < expected.n_candidates && i < SDS_MAX_CANDIDATES; i++) {
        if (sds_table_candidate_at(table, index, i, &candidate) != SDS_OK) continue;
        const uint64_t bit = uint64_t{1} << i;
        if (sds_candidate_is_partial(&candidate, &expected)) out.partial |= bit;
        if (candidate.shadow_permille < 1000) out.in_shadow |= bit;
    }
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

Redirection *find_redirection(const Object &object, const OpenDataset &dataset, hid_t type)
{
    if (!dataset.file) return nullptr;
    const Host &host = *object.host;
    const bool by_engine_too = may_be_read_by_engine(host, dataset, type);
    OwnChunks *own = by_engine_too ? nullptr : find_own_chunks(object, dataset, type);
    if (!dataset.file->table && !by_engine_too && !own) return nullptr;
    Redirection found = {};
    found.own = own;
    found.is_contiguous = found.by_engine_too = by_engine_too;
    if (dataset.file->table) look_up(host, dataset, type, found);
    const bool is_needed = by_engine_too || own || found.n_candidates > 0;
    auto *made = is_needed ? static_cast<Redirection *>(malloc(sizeof(Redirection))) : nullptr;
    if (!made) {
        release_own_chunks(own);
        return nullptr;
    }
    *made = found;
    if (made->n_candidates > 0) made->kept = follow_chunks(object, dataset.description);
    return made;
}

void release_redirection(Redirection *redirection)
{
    free_all(redirection->newest);
    release_choices(redirection->scattered);
    release_chunks(redirection->kept);
    release_own_chunks(redirection->own);
    free(redirection);
}

OwnChunks *own_chunks_of(const OpenDataset &dataset)
{
    OwnChunks *own = dataset.redirection ? dataset.redirection->own : nullptr;
    return own && !__atomic_load_n(&own->is_left, __ATOMIC_RELAXED) ? own : nullptr;
}

bool has_own_chunks(const OpenDataset &dataset)
{
    return dataset.redirection && dataset.redirection->own;
}

bool may_be_served(const OpenDataset &dataset)
{
    const Redirection *redirection = dataset.redirection;
    return redirection &&
           (redirection->n_candidates > 0 || redirection->by_engine_too || own_chunks_of(dataset));
}

bool has_replicas(const OpenDataset &dataset)
{
    return dataset.redirection && dataset.redirection->n_candidates > 0;
}

int64_t serve_read(const Object &object, OpenDataset &dataset, const Selection &selection,
                   const ReadRequest &request, Deal &deal)
{
    // HDF5 refuses a read without a buffer.
    if (selection.n_elements == 0 || !request.buffer) return original(dataset, empty_selection);
    KeptChunks *kept = dataset.redirection->kept;
    if (kept && is_left_to_cache(*kept)) return original(dataset, kept_decoded);
    if (selection.kind != SDS_SELECT_ALL && selection.kind != SDS_SELECT_HYPERSLAB)
        return serve_scattered(object, dataset, selection, request, deal);
    const Choice choice = with_own_chunks(dataset, selection.slab, choose(dataset, selection.slab));
    if (choice.of < 0) tell(dataset, why_none(dataset, selection.slab));
    const NativeRead native =
        kept ? count_read(*kept, selection.slab, choice.by_hdf5_s) : NativeRead{};
    if (choice.of == SDS_BY_HDF5) return 0;
    const int64_t begin_ns = kept ? monotonic_ns() : 0;
    const int64_t server = serve_box(object, dataset, choice, selection, request, deal);
    if (kept && server > 0)
        count_served(*kept, native, static_cast<double>(monotonic_ns() - begin_ns) * 1e-9);
    return server;
}

} // namespace sds::vol
