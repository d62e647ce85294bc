#include "replica.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chunk_cache.h"
#include "clock.h"
#include "config.h"
#include "damage.h"
#include "decoding_room.h"
#include "hdf5_memory.h"
#include "measured.h"
#include "open_file.h"
#include "replica_check.h"
#include "scratch.h"
#include "sds/candidate.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

constexpr int max_failures = 3;

// Descriptors kept open in the process, whose programs have the others for themselves.
constexpr int max_kept = 32;
int n_kept = 0;

int open_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    // A program that has closed its standard output may still print.
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return moved;
}

// Whether one more is kept; then it counts.
bool may_keep(int fd)
{
    if (!leaves_room(fd)) return false;
    if (__atomic_add_fetch(&n_kept, 1, __ATOMIC_RELAXED) <= max_kept) return true;
    __atomic_sub_fetch(&n_kept, 1, __ATOMIC_RELAXED);
    return false;
}

// nullptr where memory is exhausted.
sds_file *open_reader(const OpenReplica &replica, int fd)
{
    const sds_file_options options = {replica.path, measured_parameters(fd), config().may_map,
                                      replica.blocks};
    sds_file *file;
    return sds_file_open(fd, &options, &file) == SDS_OK ? file : nullptr;
}

// Keep it where there is room, or close it.
void settle(OpenReplica &replica, int fd)
{
    struct stat found;
    if (!replica.problem && fstat(fd, &found) == 0 && may_keep(fd)) {
        replica.device = static_cast<uint64_t>(found.st_dev);
        replica.fd = fd;
        replica.file = open_reader(replica, fd);
    } else {
        close(fd);
    }
}

// False where the program has closed the descriptor: the number may be one of its own now.
bool is_own(const OpenReplica &replica)
{
    struct stat found;
    return fstat(replica.fd, &found) == 0 &&
           static_cast<uint64_t>(found.st_dev) == replica.device &&
           static_cast<uint64_t>(found.st_ino) == replica.identity.inode;
}

// Replicas in chunks that HDF5 has open. For the metadata of each file it takes half a mebibyte,
// once for all who have it open. So few files are open at a time: the one that was not used for
// longest gives its room to the next.
struct Place {
    const Host *host; // nullptr: free
    uint64_t inode;
    OpenReplica *replica; // nullptr while it is being opened
    uint64_t part;        // of malloc's memory, in which the file was opened
};
constexpr int max_places = 32;
constexpr int max_files = 4;
constexpr int max_files_of_host = 3; // others need not wait until all that it has open is closed
Place places[max_places];
bool is_wanted = false; // a host that has no file open found no room

// A program that reads in turn more replicas than there is room for is not to open them in turn:
// some serve it, and the originals the rest. What was idle for so long, and twenty times as long
// as it takes to open it, goes.
constexpr int64_t min_idle_ns = 50000000;
constexpr int64_t idle_per_opening = 20;

constexpr char no_place[] = "other replicas in chunks are in use";
constexpr char no_memory[] =
    "other threads use the memory that there is to open replicas in chunks";

// Called with the lock held, as all up to take_place().
bool is_of_file(const Place &place, const Host &host, uint64_t inode)
{
    return place.host == &host && place.inode == inode;
}

// The place of the file that comes first; nullptr where it is not open.
Place *find_place(const Host &host, uint64_t inode)
{
    for (Place &place : places)
        if (is_of_file(place, host, inode)) return &place;
    return nullptr;
}

// Files that are open; of one host, or of all for nullptr.
int count_files(const Host *host)
{
    int n = 0;
    for (const Place &place : places)
        if (place.host && (!host || place.host == host))
            n += find_place(*place.host, place.inode) == &place;
    return n;
}

bool is_idle(const Place &place, int64_t now_ns)
{
    if (!place.replica) return false;
    const OpenReplica &replica = *place.replica;
    const int64_t idle_ns = now_ns - __atomic_load_n(&replica.used_ns, __ATOMIC_RELAXED);
    return __atomic_load_n(&replica.n_users, __ATOMIC_ACQUIRE) == 0 && idle_ns >= min_idle_ns &&
           idle_ns >= idle_per_opening * replica.opening_ns;
}

// When a file was last used; INT64_MAX where it is not idle.
int64_t last_use(const Host &host, uint64_t inode, int64_t now_ns)
{
    int64_t last_ns = 0;
    for (const Place &place : places) {
        if (!is_of_file(place, host, inode)) continue;
        if (!is_idle(place, now_ns)) return INT64_MAX;
        if (place.replica->used_ns > last_ns) last_ns = place.replica->used_ns;
    }
    return last_ns;
}

// The host's file that was not used for longest; nullptr where none is idle.
const Place *find_idle(const Host &host)
{
    const int64_t now_ns = coarse_monotonic_ns();
    const Place *found = nullptr;
    int64_t least_ns = INT64_MAX;
    for (const Place &place : places) {
        if (place.host != &host) continue;
        const int64_t last_ns = last_use(host, place.inode, now_ns);
        if (last_ns >= least_ns) continue;
        least_ns = last_ns;
        found = &place;
    }
    return found;
}

void free_place(Place &left)
{
    left = {};
    if (count_files(nullptr) > 0) return;
    use_small_pieces(false);
    drop_cached_boxes();
    drop_decoding_buffers();
}

// Take from a replica what HDF5 has open of it; its place is free then.
ReplicaDataset take_dataset(OpenReplica &replica)
{
    for (Place &place : places)
        if (place.replica == &replica) free_place(place);
    const ReplicaDataset taken = replica.dataset;
    replica.dataset = {};
    return taken;
}

// Close the idle ones of a file.
void close_file(const Host &host, uint64_t inode)
{
    for (;;) {
        ReplicaDataset dataset = {};
        {
            SharedStateLock lock;
            const int64_t now_ns = coarse_monotonic_ns();
            for (const Place &place : places)
                if (!dataset.host && is_of_file(place, host, inode) && is_idle(place, now_ns))
                    dataset = take_dataset(*place.replica);
        }
        if (!dataset.host) return;
        close_replica_dataset(dataset);
    }
}

// Files that were opened in a part of malloc's memory, but for one.
int count_files_in(uint64_t part, uint64_t but_for)
{
    int n = 0;
    for (const Place &place : places)
        if (place.host && place.inode != but_for && place.part == part)
            n += find_place(*place.host, place.inode) == &place;
    return n;
}

// A place for one more of the host's; nullptr, and why, where there is none.
// idle: the file to be closed first, 0 for none.
Place *take_place(const Host &host, uint64_t inode, uint64_t &idle, const char *&problem)
{
    SharedStateLock lock;
    idle = 0;
    problem = no_place;
    const int n_of_host = count_files(&host);
    const bool is_open = find_place(host, inode) != nullptr;
    if (!is_open && (n_of_host >= max_files_of_host || count_files(nullptr) >= max_files)) {
        const Place *oldest = find_idle(host);
        if (n_of_host == 0) __atomic_store_n(&is_wanted, true, __ATOMIC_RELAXED);
        if (!oldest) return nullptr;
        idle = oldest->inode;
    }
    Place *found = nullptr;
    for (Place &place : places)
        if (!place.host) found = &place;
    if (!found) return nullptr;
    const uint64_t part = part_of_malloc();
    if (!is_open && !may_hold_files(part, 1 + count_files_in(part, idle))) {
        problem = no_memory;
        return nullptr;
    }
    *found = {&host, inode, nullptr, part};
    use_small_pieces(true);
    return found;
}

// Leave room to another host that has none, which cannot have this host's replicas closed.
void give_room(const Host &host)
{
    uint64_t inode;
    {
        SharedStateLock lock;
        const Place *idle = count_files(&host) > 1 ? find_idle(host) : nullptr;
        if (!idle) return;
        inode = idle->inode;
        __atomic_store_n(&is_wanted, false, __ATOMIC_RELAXED);
    }
    close_file(host, inode);
}

// Look at a replica in chunks, and have HDF5 open its dataset. Returns why it must not be used.
const char *open_in_chunks(const Host &host, uid_t source_owner, const sds_table_dataset &dataset,
                           const sds_candidate &candidate, ReplicaDataset &out)
{
    const int fd = open_file(candidate.path);
    if (fd < 0) return errno == ENOENT ? "the replica is missing" : "the replica cannot be opened";
    const char *problem = find_replica_problem(fd, dataset, candidate, source_owner, nullptr);
    close(fd);
    if (!problem) problem = open_replica_dataset(host, dataset, candidate, out);
    if (problem || leaves_room(*out.fd)) return problem;
    close_replica_dataset(out);
    return "the program needs its descriptors itself";
}

// What is known of a replica from the start; nullptr where memory is exhausted.
OpenReplica *make_replica(const sds_candidate &candidate)
{
    const auto n_segments = static_cast<size_t>(candidate.tiles.n_segments);
    auto *replica = static_cast<OpenReplica *>(calloc(1, sizeof(OpenReplica) + n_segments));
    if (!replica) return nullptr;
    replica->replica_id = candidate.replica_id;
    replica->path = candidate.path;
    replica->identity = candidate.identity;
    replica->n_segments = candidate.tiles.n_segments;
    replica->fd = -1;
    return replica;
}

// What checks the blocks of a replica that are read, the first of them sooner where the process has
// not opened it before. Returns why it is not to be used.
const char *check_blocks(int fd, const sds_table_dataset &dataset, const sds_candidate &candidate,
                         bool is_first, sds_blocks *&blocks)
{
    const bool all = config().verify_reads;
    const sds_block_checks checks = all        ? SDS_BLOCKS_ALL
                                    : is_first ? SDS_BLOCKS_SAMPLED_SOON
                                               : SDS_BLOCKS_SAMPLED;
    const sds_status status = sds_blocks_new(
        candidate.data_offset_bytes, sds_candidate_bytes(&candidate, &dataset), checks, &blocks);
    if (status != SDS_OK) return "memory is exhausted";
    if (!all || sds_blocks_load(blocks, fd) == SDS_OK) return nullptr;
    return "reads are to be verified, and the replica, built by an older SDS, has no checksums "
           "that they could be verified with";
}

void open_contiguous(const sds_table_dataset &dataset, const sds_candidate &candidate,
                     uid_t source_owner, const sds_hyperslab *slab, OpenReplica &replica)
{
    const int saved_errno = errno;
    const int fd = open_file(candidate.path);
    if (fd < 0) {
        replica.problem =
            errno == ENOENT ? "the replica is missing" : "the replica cannot be opened";
    } else {
        const bool is_first = !was_checked(candidate);
        replica.problem = find_replica_problem(fd, dataset, candidate, source_owner, slab);
        if (!replica.problem)
            replica.problem = check_blocks(fd, dataset, candidate, is_first, replica.blocks);
        settle(replica, fd);
    }
    errno = saved_errno;
}

// The number does not do: a table that is wrong may give one to several.
bool is_of(const OpenReplica &replica, const sds_candidate &candidate)
{
    return replica.replica_id == candidate.replica_id && replica.path == candidate.path &&
           replica.n_segments == candidate.tiles.n_segments;
}

OpenReplica *find_replica(OpenReplica *first, const sds_candidate &candidate)
{
    while (first && !is_of(*first, candidate))
        first = first->next;
    return first;
}

} // namespace

const OpenReplica *find_replica(OpenFile &file, const sds_candidate &candidate)
{
    SharedStateLock lock;
    return find_replica(file.replicas, candidate);
}

OpenReplica replica_to_probe(const sds_candidate &candidate)
{
    OpenReplica replica = {};
    replica.path = candidate.path;
    replica.identity = candidate.identity;
    replica.fd = -1;
    return replica;
}

bool leaves_room(int fd)
{
    rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(fd) < limit.rlim_cur / 4;
}

// Called with the lock held: HDF5 is to have the dataset open for as long as the read lasts. False
// where it has not.
bool ReplicaUse::hold()
{
    problem_ = __atomic_load_n(&replica_->problem, __ATOMIC_ACQUIRE);
    host_ = problem_ ? nullptr : replica_->dataset.host;
    if (host_) __atomic_add_fetch(&replica_->n_users, 1, __ATOMIC_RELAXED);
    return host_;
}

// True where the replica is known and can be read, or cannot.
bool ReplicaUse::find(OpenFile &file, const sds_candidate &candidate)
{
    SharedStateLock lock;
    replica_ = find_replica(file.replicas, candidate);
    return replica_ && (hold() || problem_ || candidate.storage != SDS_TABLE_CHUNKED);
}

void ReplicaUse::open(const Host &host, uid_t source_owner, const sds_table_dataset &dataset,
                      const sds_candidate &candidate)
{
    uint64_t idle = 0;
    const char *no_room = nullptr;
    Place *place = take_place(host, candidate.identity.inode, idle, no_room);
    if (!place) {
        problem_ = no_room;
        return;
    }
    const int saved_errno = errno;
    if (idle != 0) close_file(host, idle);
    const int64_t begin_ns = monotonic_ns();
    ReplicaDataset opened = {};
    const char *problem = open_in_chunks(host, source_owner, dataset, candidate, opened);
    {
        SharedStateLock lock;
        if (problem) __atomic_store_n(&replica_->problem, problem, __ATOMIC_RELEASE);
        if (!problem && !replica_->dataset.host) {
            place->replica = replica_;
            replica_->dataset = opened;
            replica_->opening_ns = monotonic_ns() - begin_ns;
            opened = {};
        } else {
            free_place(*place); // another thread may have been faster
        }
        if (!hold() && !problem_) problem_ = no_place; // which others have taken again
    }
    close_replica_dataset(opened);
    errno = saved_errno;
}

ReplicaUse::ReplicaUse(OpenFile &file, const sds_table_dataset &dataset,
                       const sds_candidate &candidate, const sds_hyperslab *slab)
    : replica_(nullptr), problem_(nullptr), host_(nullptr)
{
    if (find(file, candidate)) return;
    if (!replica_) {
        OpenReplica *made = make_replica(candidate);
        if (!made) {
            problem_ = "memory is exhausted";
            return;
        }
        if (candidate.storage != SDS_TABLE_CHUNKED)
            open_contiguous(dataset, candidate, file.owner, slab, *made);
        {
            SharedStateLock lock;
            replica_ = find_replica(file.replicas, candidate);
            if (!replica_) {
                replica_ = made;
                made->next = file.replicas;
                file.replicas = made;
                made = nullptr;
            }
            problem_ = replica_->problem;
        }
        close_replicas(made); // another thread was faster
    }
    if (!problem_ && candidate.storage == SDS_TABLE_CHUNKED)
        open(*file.host, file.owner, dataset, candidate);
}

ReplicaUse::~ReplicaUse()
{
    if (!host_) return;
    __atomic_store_n(&replica_->used_ns, coarse_monotonic_ns(), __ATOMIC_RELAXED);
    __atomic_sub_fetch(&replica_->n_users, 1, __ATOMIC_RELEASE);
    if (__atomic_load_n(&is_wanted, __ATOMIC_RELAXED)) give_room(*host_);
}

ReplicaFile::ReplicaFile(const OpenReplica &replica)
    : replica_(replica), fd_(replica.fd), file_(replica.file)
{
    if (is_unchanged()) return;
    const int saved_errno = errno;
    // May give the number that is kept again, where the program has closed it: then it is kept.
    fd_ = open_file(replica.path);
    if (!is_unchanged()) {
        if (fd_ >= 0) close(fd_);
        fd_ = -1;
    }
    if (fd_ != replica.fd) file_ = fd_ >= 0 ? open_reader(replica, fd_) : nullptr;
    errno = saved_errno;
}

ReplicaFile::~ReplicaFile()
{
    if (fd_ < 0 || fd_ == replica_.fd) return;
    sds_file_close(file_);
    close(fd_);
}

bool ReplicaFile::is_unchanged() const
{
    sds_identity now;
    return fd_ >= 0 && sds_identity_of_fd(fd_, &now, nullptr, nullptr) == SDS_OK &&
           sds_identity_equal(&now, &replica_.identity);
}

void count_failure(OpenReplica &replica)
{
    static const char unreadable[] = "the replica could not be read";
    static const char damaged[] = "a block of the replica differs from its checksum";
    static const char problem[] = "reading the replica failed several times";
    const bool is_damaged = replica.blocks && sds_blocks_damaged(replica.blocks) >= 0;
    if (is_damaged) {
        __atomic_store_n(&replica.problem, &damaged[0], __ATOMIC_RELEASE);
        note_damage(replica.replica_id, replica.identity);
    } else if (replica.dataset.host) {
        __atomic_store_n(&replica.problem, &unreadable[0], __ATOMIC_RELEASE);
        report_damage(replica.replica_id);
    } else if (__atomic_add_fetch(&replica.n_failures, 1, __ATOMIC_RELAXED) == max_failures) {
        __atomic_store_n(&replica.problem, &problem[0], __ATOMIC_RELEASE);
    }
}

void close_replica_datasets(const Host &host)
{
    for (;;) {
        ReplicaDataset dataset = {};
        {
            SharedStateLock lock;
            for (Place &place : places)
                if (place.host == &host && place.replica && !dataset.host)
                    dataset = take_dataset(*place.replica);
        }
        if (!dataset.host) return;
        close_replica_dataset(dataset);
    }
}

void close_replicas(OpenReplica *first)
{
    while (first) {
        OpenReplica *next = first->next;
        ReplicaDataset dataset = {};
        {
            SharedStateLock lock; // another thread may be about to close it
            dataset = take_dataset(*first);
        }
        close_replica_dataset(dataset);
        if (first->fd >= 0) {
            sds_file_close(first->file);
            if (is_own(*first)) close(first->fd);
            __atomic_sub_fetch(&n_kept, 1, __ATOMIC_RELAXED);
        }
        sds_blocks_free(first->blocks);
        free(first);
        first = next;
    }
}

} // namespace sds::vol
