#include "replica.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "candidate.h"
#include "config.h"
#include "measured.h"
#include "open_file.h"
#include "sds/checksum.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// Header, attributes and checksums of a replica; what is larger is not one that SDS has made.
constexpr int64_t max_metadata_bytes = 1 << 20;

// Replicas whose metadata this process has checked: reading it anew at every H5Fopen would cost
// more than many a read. The oldest is forgotten.
struct CheckedReplica {
    sds_identity identity;
    uint32_t crc;
};
constexpr int max_checked = 128;
CheckedReplica checked[max_checked];
int n_checked = 0;

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

// Why the bytes around the dataset are not to be relied on; nullptr where they are.
const char *check_metadata(int fd, const sds_candidate &candidate, int64_t n_bytes,
                           int64_t size_bytes)
{
    const int64_t begin = candidate.data_offset_bytes, end = begin + n_bytes;
    if (end > size_bytes) return "the replica is too short for its dataset";
    if (size_bytes - n_bytes > max_metadata_bytes)
        return "the replica holds too much besides its dataset";
    if (was_checked(candidate)) return nullptr;
    uint32_t crc = 0;
    if (!add_range(fd, 0, begin, crc) || !add_range(fd, end, size_bytes, crc))
        return "the replica's metadata cannot be read";
    if (crc != candidate.metadata_crc32c) return "the replica's metadata is damaged";
    remember_checked(candidate);
    return nullptr;
}

// Why the open file is not to be used; nullptr where it is.
const char *find_problem(int fd, const sds_table_dataset &dataset, const sds_candidate &candidate,
                         uid_t source_owner)
{
    sds_identity found;
    uint32_t owner = 0, mode = 0;
    if (sds_identity_of_fd(fd, &found, &owner, &mode) != SDS_OK)
        return "the replica cannot be looked at";
    if (!S_ISREG(mode)) return "the replica is no regular file";
    if (!sds_identity_equal(&found, &candidate.identity))
        return "the replica has changed since it was published";
    if (!is_trusted_owner(owner, source_owner))
        return "the replica belongs to neither the source's owner nor this user";
    if (mode & (S_IWGRP | S_IWOTH)) return "the replica is writable by others";
    if (candidate.storage == SDS_TABLE_CHUNKED) return nullptr; // HDF5 checks the rest
    return check_metadata(fd, candidate, bytes_of(dataset, candidate), found.size_bytes);
}

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
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(fd) >= limit.rlim_cur / 4)
        return false;
    if (__atomic_add_fetch(&n_kept, 1, __ATOMIC_RELAXED) <= max_kept) return true;
    __atomic_sub_fetch(&n_kept, 1, __ATOMIC_RELAXED);
    return false;
}

// nullptr where memory is exhausted.
sds_file *open_reader(const OpenReplica &replica, int fd)
{
    const sds_file_options options = {replica.path, measured_parameters(replica.path, fd),
                                      config().may_map};
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

// As open_replica_dataset(), where there is room for one more.
const char *open_and_keep(const Host &host, const sds_table_dataset &dataset,
                          const sds_candidate &candidate, ReplicaDataset &out)
{
    const char *problem = open_replica_dataset(host, dataset, candidate, out);
    if (problem || may_keep(*out.fd)) return problem;
    close_replica_dataset(out);
    return "the program needs its descriptors itself";
}

OpenReplica *open_replica(const Host &host, const sds_table_dataset &dataset,
                          const sds_candidate &candidate, uid_t source_owner)
{
    auto *replica = static_cast<OpenReplica *>(calloc(1, sizeof(OpenReplica)));
    if (!replica) return nullptr;
    const int saved_errno = errno;
    replica->replica_id = candidate.replica_id;
    replica->path = candidate.path;
    replica->identity = candidate.identity;
    replica->fd = -1;
    const int fd = open_file(candidate.path);
    if (fd < 0) {
        replica->problem =
            errno == ENOENT ? "the replica is missing" : "the replica cannot be opened";
    } else {
        replica->problem = find_problem(fd, dataset, candidate, source_owner);
        if (candidate.storage == SDS_TABLE_CHUNKED)
            close(fd);
        else
            settle(*replica, fd);
    }
    if (!replica->problem && candidate.storage == SDS_TABLE_CHUNKED)
        replica->problem = open_and_keep(host, dataset, candidate, replica->dataset);
    errno = saved_errno;
    return replica;
}

OpenReplica *find(OpenReplica *first, int64_t replica_id)
{
    while (first && first->replica_id != replica_id)
        first = first->next;
    return first;
}

} // namespace

bool is_trusted_owner(uid_t owner, uid_t source_owner)
{
    return owner == source_owner || owner == geteuid() ||
           (config().has_service_uid && owner == config().service_uid);
}

OpenReplica *replica_of(OpenFile &file, const sds_table_dataset &dataset,
                        const sds_candidate &candidate)
{
    {
        SharedStateLock lock;
        if (OpenReplica *known = find(file.replicas, candidate.replica_id)) return known;
    }
    // Replicas in chunks are not opened for each read: while others take the room, it is left
    // alone.
    if (candidate.storage == SDS_TABLE_CHUNKED &&
        __atomic_load_n(&n_kept, __ATOMIC_RELAXED) >= max_kept)
        return nullptr;
    OpenReplica *made = open_replica(*file.host, dataset, candidate, file.owner);
    if (!made) return nullptr;
    OpenReplica *known;
    {
        SharedStateLock lock;
        known = find(file.replicas, candidate.replica_id);
        if (!known) {
            made->next = file.replicas;
            file.replicas = made;
            return made;
        }
    }
    close_replicas(made); // another thread was faster
    return known;
}

const char *problem_of(const OpenReplica &replica)
{
    return __atomic_load_n(&replica.problem, __ATOMIC_ACQUIRE);
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
    static const char damaged[] = "the replica could not be read";
    static const char problem[] = "reading the replica failed several times";
    if (replica.dataset.host)
        __atomic_store_n(&replica.problem, &damaged[0], __ATOMIC_RELEASE);
    else if (__atomic_add_fetch(&replica.n_failures, 1, __ATOMIC_RELAXED) == max_failures)
        __atomic_store_n(&replica.problem, &problem[0], __ATOMIC_RELEASE);
}

OpenReplica *find_open_dataset(OpenReplica *first)
{
    while (first && !first->dataset.host)
        first = first->next;
    return first;
}

ReplicaDataset take_dataset(OpenReplica &replica)
{
    static const char closing[] = "HDF5 is being closed";
    __atomic_store_n(&replica.problem, &closing[0], __ATOMIC_RELEASE);
    const ReplicaDataset taken = replica.dataset;
    replica.dataset = {};
    if (taken.host) __atomic_sub_fetch(&n_kept, 1, __ATOMIC_RELAXED);
    return taken;
}

void close_replicas(OpenReplica *first)
{
    while (first) {
        OpenReplica *next = first->next;
        ReplicaDataset dataset = take_dataset(*first);
        close_replica_dataset(dataset);
        if (first->fd >= 0) {
            sds_file_close(first->file);
            if (is_own(*first)) close(first->fd);
            __atomic_sub_fetch(&n_kept, 1, __ATOMIC_RELAXED);
        }
        free(first);
        first = next;
    }
}

} // namespace sds::vol
