#include "original_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"
#include "error_stack.h"
#include "measured.h"
#include "queries.h"
#include "replica.h"
#include "shared_state.h"

namespace sds::vol
{

int n_originals = 0;

namespace
{

constexpr int max_failures = 3;

OriginalFile *originals = nullptr;

// In a page buffer HDF5 keeps what it has read, which the engine would read anew.
bool has_page_buffer(const Host &host, hid_t fapl)
{
    size_t bytes = 0;
    unsigned min_metadata = 0, min_raw = 0;
    return host.hdf5.H5Pget_page_buffer_size &&
           (host.hdf5.H5Pget_page_buffer_size(fapl, &bytes, &min_metadata, &min_raw) < 0 ||
            bytes > 0);
}

int64_t sieve_bytes_of(const Host &host, hid_t fapl)
{
    size_t bytes = 0;
    if (!host.hdf5.H5Pget_sieve_buf_size || host.hdf5.H5Pget_sieve_buf_size(fapl, &bytes) < 0)
        return SDS_SIEVE_BYTES;
    return bytes < INT64_MAX ? static_cast<int64_t>(bytes) : INT64_MAX;
}

// Its fields from the file on; false where it is not to be read past HDF5.
bool look_at(const Object &file, hid_t fapl, int fd, const struct stat &found, OriginalFile &out)
{
    const Host &host = *file.host;
    ErrorStackKeeper keep(host);
    out.host = &host;
    if (fd < 0 || !S_ISREG(found.st_mode)) return false;
    // HDF5 reads all of a small file with one request.
    if (found.st_size <= SDS_SIEVE_BYTES && config().engine != Engine::always) return false;
    if (has_page_buffer(host, fapl)) return false;
    out.sieve_bytes = sieve_bytes_of(host, fapl);
    out.end = allocated_end_of(file);
    out.fd = fd;
    out.device = static_cast<uint64_t>(found.st_dev);
    out.inode = static_cast<uint64_t>(found.st_ino);
    return out.end > 0;
}

sds_file *make_reader(OriginalFile &file)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd);
    const char *again = leaves_room(file.fd) ? path : nullptr;
    const sds_file_options options = {again, costs_of(file), config().may_map, nullptr};
    sds_file *made = nullptr;
    return sds_file_open(file.fd, &options, &made) == SDS_OK ? made : nullptr;
}

// One use of the reader, which is this one where there is none; nullptr where that is none either.
sds_file *take_reader(OriginalFile &file, sds_file *made)
{
    SharedStateLock lock;
    if (!file.reader) __atomic_store_n(&file.reader, made, __ATOMIC_RELAXED);
    if (file.reader) file.n_reading++;
    return file.reader;
}

// To be called with the lock. Returns it, to be closed without.
sds_file *give_up_reader(OriginalFile &file)
{
    sds_file *reader = file.reader;
    __atomic_store_n(&file.reader, nullptr, __ATOMIC_RELAXED);
    file.is_closed = false;
    return reader;
}

bool is_own(const OriginalFile &file, struct stat &now)
{
    const int saved_errno = errno;
    const bool is_same = fstat(file.fd, &now) == 0 &&
                         static_cast<uint64_t>(now.st_dev) == file.device &&
                         static_cast<uint64_t>(now.st_ino) == file.inode;
    errno = saved_errno;
    return is_same;
}

// To be called with the lock.
OriginalFile *find(const Host &host, unsigned long fileno)
{
    OriginalFile *file = originals;
    while (file && (file->host != &host || file->fileno != fileno))
        file = file->next;
    if (file) file->references++;
    return file;
}

} // namespace

OriginalFile *open_original(const Object &file, unsigned long fileno, hid_t fapl, int fd,
                            const struct stat &found)
{
    {
        SharedStateLock lock;
        if (OriginalFile *known = find(*file.host, fileno)) return known;
    }
    const int saved_errno = errno;
    auto *made = static_cast<OriginalFile *>(calloc(1, sizeof(OriginalFile)));
    const bool is_usable = made && look_at(file, fapl, fd, found, *made);
    errno = saved_errno;
    if (!is_usable) {
        free(made);
        return nullptr;
    }
    made->fileno = fileno;
    made->references = 1;
    OriginalFile *known;
    {
        SharedStateLock lock;
        known = find(*file.host, fileno);
        if (!known) {
            made->next = originals;
            originals = made;
            __atomic_add_fetch(&n_originals, 1, __ATOMIC_RELAXED);
            return made;
        }
    }
    free(made); // another thread was faster
    return known;
}

void close_original(OriginalFile *file)
{
    {
        SharedStateLock lock;
        if (--file->references > 0) return;
        OriginalFile **link = &originals;
        while (*link != file)
            link = &(*link)->next;
        *link = file->next;
        __atomic_sub_fetch(&n_originals, 1, __ATOMIC_RELAXED);
    }
    // HDF5 may have closed its descriptor by now, which is not touched any more.
    sds_file_close(file->reader);
    free(file);
}

bool may_be_read(const OriginalFile &file, int64_t end)
{
    struct stat now;
    return __atomic_load_n(&file.n_failures, __ATOMIC_RELAXED) < max_failures &&
           is_own(file, now) && now.st_size >= end;
}

const sds_io_parameters *costs_of(OriginalFile &file)
{
    if (!__atomic_load_n(&file.has_costs, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&file.costs, measured_parameters(file.fd), __ATOMIC_RELAXED);
        __atomic_store_n(&file.has_costs, true, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&file.costs, __ATOMIC_RELAXED);
}

OriginalReader::OriginalReader(OriginalFile &file)
    : file_(file), reader_(take_reader(file, nullptr))
{
    if (reader_) return;
    sds_file *made = make_reader(file);
    if (!made) return;
    reader_ = take_reader(file, made);
    if (reader_ != made) sds_file_close(made); // another thread was faster
}

OriginalReader::~OriginalReader()
{
    if (!reader_) return;
    sds_file *unused = nullptr;
    {
        SharedStateLock lock;
        if (--file_.n_reading == 0 && file_.is_closed) unused = give_up_reader(file_);
    }
    sds_file_close(unused);
}

void after_close(OriginalFile *file)
{
    struct stat now;
    if (!file || !__atomic_load_n(&file->reader, __ATOMIC_RELAXED) || is_own(*file, now)) return;
    sds_file *unused = nullptr;
    {
        SharedStateLock lock;
        file->is_closed = true;
        if (file->n_reading == 0) unused = give_up_reader(*file);
    }
    sds_file_close(unused);
}

void count_failure(OriginalFile &file)
{
    __atomic_add_fetch(&file.n_failures, 1, __ATOMIC_RELAXED);
}

// A child that closes its parent's descriptors, as daemons do, would keep the lock that HDF5 had on
// the file by what it inherits of the mapping: it makes its own with the first need. Readers that
// other threads of the parent use, or that a handler has interrupted, are left alone.
void give_up_readers()
{
    for (OriginalFile *file = originals; file; file = file->next)
        if (file->reader && file->n_reading == 0) sds_file_close(give_up_reader(*file));
}

} // namespace sds::vol
