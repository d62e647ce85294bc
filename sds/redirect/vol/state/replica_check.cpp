#include "replica_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "damage.h"
#include "sds/candidate.h"
#include "sds/checksum.h"
#include "sds/geometry.h"
#include "sds/read_engine.h"
#include "sds/tiles.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// Replicas whose metadata this process has checked: reading it anew at every H5Fopen would cost
// more than many a read. The oldest is forgotten.
struct CheckedReplica {
    sds_identity identity;
    uint32_t crc;
};
constexpr int max_checked = 128;
CheckedReplica checked[max_checked];
int n_checked = 0;

void remember_checked(const sds_candidate &candidate)
{
    SharedStateLock lock;
    checked[n_checked++ % max_checked] = {candidate.identity, candidate.metadata_crc32c};
    if (n_checked == 2 * max_checked) n_checked = max_checked;
}

bool add_range(int fd, int64_t begin, int64_t end, uint32_t &crc)
{
    constexpr int64_t buffer_bytes = 16384;
    void *buffer = malloc(buffer_bytes);
    while (buffer && begin < end) {
        const int64_t left = end - begin;
        const int64_t n = left < buffer_bytes ? left : buffer_bytes;
        const ssize_t got = pread(fd, buffer, static_cast<size_t>(n), begin);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        crc = sds_crc32c(crc, buffer, static_cast<size_t>(got));
        begin += got;
    }
    const bool is_whole = buffer && begin >= end;
    free(buffer);
    return is_whole;
}

// What is read first of tiles, as it is stored; false where the replica holds none of it. Apart: it
// takes more of the stack than other reads.
__attribute__((noinline)) bool find_first_of_tiles(const sds_table_dataset &dataset,
                                                   const sds_candidate &candidate,
                                                   const sds_hyperslab &slab, sds_array &array,
                                                   sds_hyperslab &stored)
{
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, &candidate, &slab);
    if (!sds_tile_walk_next(&walk, &piece) || piece.place < 0) return false;
    sds_tile_array(&candidate, &dataset, piece.place, &array);
    stored = piece.slab;
    return true;
}

// What is read first, as it is stored.
bool find_first(const sds_table_dataset &dataset, const sds_candidate &candidate,
                const sds_hyperslab &slab, sds_array &array, sds_hyperslab &stored)
{
    if (candidate.tiles.n > 0) return find_first_of_tiles(dataset, candidate, slab, array, stored);
    sds_candidate_array(&candidate, &dataset, &array);
    return sds_candidate_slab(&candidate, &slab, &stored) == SDS_OK;
}

// The device is to work on what is read first while the file is checked.
void announce_slab(int fd, const sds_table_dataset &dataset, const sds_candidate &candidate,
                   const sds_hyperslab &slab)
{
    sds_array array;
    sds_hyperslab stored;
    sds_runs runs;
    if (find_first(dataset, candidate, slab, array, stored) &&
        sds_runs_of(&array, &stored, &runs) == SDS_OK && runs.n_levels == 0)
        sds_announce_range(fd, runs.first_offset, runs.run_bytes);
}

void announce_metadata(int fd, int64_t begin, int64_t end)
{
    if (begin < end)
        (void)posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                            POSIX_FADV_WILLNEED);
}

// Why the bytes around the dataset are not to be relied on; nullptr where they are.
// slab: what is read of the source, if known.
const char *check_metadata(int fd, const sds_table_dataset &dataset, const sds_candidate &candidate,
                           int64_t size_bytes, const sds_hyperslab *slab)
{
    const int64_t n_bytes = sds_candidate_bytes(&candidate, &dataset);
    const int64_t begin = candidate.data_offset_bytes, end = begin + n_bytes;
    if (end > size_bytes) return "the replica is too short for its dataset";
    if (size_bytes - n_bytes > SDS_MAX_METADATA_BYTES)
        return "the replica holds too much besides its dataset";
    const bool is_known = was_checked(candidate);
    if (!is_known) { // waited for first, so asked for first
        announce_metadata(fd, 0, begin);
        announce_metadata(fd, end, size_bytes);
    }
    if (slab) announce_slab(fd, dataset, candidate, *slab);
    if (is_known) return nullptr;
    uint32_t crc = 0;
    if (!add_range(fd, 0, begin, crc) || !add_range(fd, end, size_bytes, crc))
        return "the replica's metadata cannot be read";
    if (crc != candidate.metadata_crc32c) {
        note_damage(candidate.replica_id, candidate.identity);
        return "the replica's metadata is damaged";
    }
    remember_checked(candidate);
    return nullptr;
}

} // namespace

bool was_checked(const sds_candidate &candidate)
{
    SharedStateLock lock;
    const int n = n_checked < max_checked ? n_checked : max_checked;
    for (int i = 0; i < n; i++)
        if (checked[i].crc == candidate.metadata_crc32c &&
            sds_identity_equal(&checked[i].identity, &candidate.identity))
            return true;
    return false;
}

bool is_trusted_owner(uid_t owner, uid_t source_owner)
{
    return owner == source_owner || owner == geteuid() ||
           (config().has_service_uid && owner == config().service_uid);
}

const char *find_replica_problem(int fd, const sds_table_dataset &dataset,
                                 const sds_candidate &candidate, uid_t source_owner,
                                 const sds_hyperslab *slab)
{
    sds_identity found;
    uint32_t owner = 0, mode = 0;
    if (sds_identity_of_fd(fd, &found, &owner, &mode) != SDS_OK)
        return "the replica cannot be looked at";
    if (!S_ISREG(mode)) return "the replica is no regular file";
    if (!sds_identity_equal(&found, &candidate.identity))
        return "the replica has changed since it was published";
    if (is_known_damaged(found)) return "the replica was found to be damaged";
    if (!is_trusted_owner(owner, source_owner))
        return "the replica belongs to neither the source's owner nor this user";
    if (mode & (S_IWGRP | S_IWOTH)) return "the replica is writable by others";
    if (candidate.storage == SDS_TABLE_CHUNKED) return nullptr; // HDF5 checks the rest
    return check_metadata(fd, dataset, candidate, found.size_bytes, slab);
}

} // namespace sds::vol
