#include "open_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "decision_log.h"
#include "replica.h"
#include "shared_state.h"
#include "tracing.h"

namespace sds::vol
{
namespace
{

constexpr int64_t freshness_interval_ns = int64_t{2} * 1000000000;

OpenFile *open_files = nullptr;
// Read without the lock.
int n_tables = 0;         // open files with a table
int n_tables_to_drop = 0; // open files with drops_table

bool is_ordinary_file(const Host &host, hid_t fapl)
{
    const hid_t driver = host.hdf5.H5Pget_driver(fapl);
    if (driver < 0) return false;
    if (host.sec2_driver) return driver == *host.sec2_driver;
    return host.sec2_driver_init && driver == host.sec2_driver_init();
}

bool print_table_path(const char *canonical, char (&out)[PATH_MAX])
{
    char name[64];
    sds_table_name(canonical, name);
    const int n = snprintf(out, sizeof out, "%s/tables/%s", config().home, name);
    return n > 0 && static_cast<size_t>(n) < sizeof out;
}

void unlink_table(const char *canonical, const char *why)
{
    char path[PATH_MAX];
    if (!print_table_path(canonical, path)) return;
    const int saved_errno = errno;
    if (unlink(path) == 0) log_decision("dropped", canonical, "", why);
    errno = saved_errno;
}

bool has_table(const char *canonical)
{
    char path[PATH_MAX];
    return print_table_path(canonical, path) && access(path, F_OK) == 0;
}

// Why a table must not be used; nullptr where it may.
const char *distrust(const sds_table *table, uid_t source_owner)
{
    if (!is_trusted_owner(sds_table_owner(table), source_owner))
        return "the table belongs to neither the source's owner nor this user";
    if (sds_table_mode(table) & (S_IWGRP | S_IWOTH)) return "the table is writable by others";
    return nullptr;
}

// The table that describes this very file; nullptr where there is none that may be used.
sds_table *load_table(const char *canonical, const sds_identity &identity, uid_t source_owner)
{
    char path[PATH_MAX];
    sds_table *table = nullptr;
    if (!print_table_path(canonical, path)) return nullptr;
    const sds_status status = sds_table_open(path, &table);
    if (status != SDS_OK) {
        if (decisions_are_logged())
            log_decision("no-table", canonical, "",
                         status == SDS_EIO && errno == ENOENT ? "there is none"
                                                              : sds_status_text(status));
        return nullptr;
    }
    const char *reason = distrust(table, source_owner);
    if (!reason && strcmp(sds_table_source_path(table), canonical) != 0)
        reason = "the table is of another path";
    if (!reason && !sds_identity_equal(sds_table_source_identity(table), &identity))
        reason = "the source has changed since its replica was made";
    log_decision(reason ? "no-table" : "table", canonical, "", reason ? reason : path);
    if (!reason) return table;
    sds_table_close(table);
    return nullptr;
}

bool is_same_file(const OpenFile &a, const OpenFile &b)
{
    return a.device == b.device && a.identity.inode == b.identity.inode;
}

// HDF5's own number of an open file: by it, files reached through external links or mounts are
// told from the one that leads to them.
bool read_fileno(const Object &file, unsigned long &fileno)
{
    H5VL_file_get_args_t args;
    memset(static_cast<void *>(&args), 0, sizeof args);
    args.op_type = H5VL_FILE_GET_FILENO;
    args.args.get_fileno.fileno = &fileno;
    return file.hdf5().H5VLfile_get(file.under, file.connector, &args, *file.host->default_dxpl,
                                    nullptr) >= 0;
}

void free_file(OpenFile *file)
{
    close_replicas(file->replicas);
    sds_table_close(file->table);
    free(file->path);
    free(file);
}

} // namespace

FileOpening::FileOpening(Host &host, const char *name, unsigned flags, hid_t under_fapl)
    : host_(host), name_(name), flags_(flags), plain_(false), found_(false)
{
    memset(&before_, 0, sizeof before_);
    if (!config().trace && !config().redirect) return;
    plain_ = is_ordinary_file(host, under_fapl);
    found_ = plain_ && sds_identity_of_path(name, &before_, nullptr, nullptr) == SDS_OK;
}

OpenFile *FileOpening::enter(const Object &opened, bool writable)
{
    unsigned long fileno = 0;
    if ((!config().trace && !config().redirect) || !read_fileno(opened, fileno)) return nullptr;
    auto *file = static_cast<OpenFile *>(calloc(1, sizeof(OpenFile)));
    if (!file) return nullptr;
    const int saved_errno = errno;
    file->host = &host_;
    file->references = 1;
    file->fileno = fileno;
    file->writable = writable;
    char canonical[PATH_MAX];
    const char *path = plain_ ? realpath(name_, canonical) : nullptr;
    file->path = strdup(path ? path : name_);
    struct stat now;
    if (!file->path) {
        free_file(file);
        return nullptr;
    }
    const bool is_path = path && stat(path, &now) == 0 &&
                         sds_identity_of_path(path, &file->identity, nullptr, nullptr) == SDS_OK;
    if (is_path) {
        file->device = static_cast<uint64_t>(now.st_dev);
        file->owner = now.st_uid;
    }
    const bool may_redirect = config().redirect && is_path && !writable &&
                              !(flags_ & H5F_ACC_SWMR_READ) && found_ &&
                              sds_identity_equal(&before_, &file->identity);
    if (may_redirect) file->table = load_table(path, file->identity, now.st_uid);
    file->checked_ns = coarse_monotonic_ns();
    file->drops_table = config().redirect && is_path && writable && has_table(path);
    errno = saved_errno;

    SharedStateLock lock;
    for (OpenFile *other = open_files; other; other = other->next) {
        // What a writer in this process has not flushed yet shows in no identity.
        if (!is_path || !is_same_file(*file, *other)) continue;
        if (writable) __atomic_store_n(&other->is_stale, true, __ATOMIC_RELEASE);
        if (other->writable) file->is_stale = true;
    }
    if (file->table) __atomic_add_fetch(&n_tables, 1, __ATOMIC_RELAXED);
    if (file->drops_table) __atomic_add_fetch(&n_tables_to_drop, 1, __ATOMIC_RELAXED);
    file->next = open_files;
    open_files = file;
    return file;
}

OpenFile *FileOpening::opened(const Object &file)
{
    return enter(file, (flags_ & H5F_ACC_RDWR) != 0);
}

OpenFile *FileOpening::created(const Object &opened)
{
    OpenFile *file = enter(opened, true);
    if (file && file->drops_table) before_write();
    return file;
}

OpenFile *find_file(const Host &host, unsigned long fileno)
{
    SharedStateLock lock;
    OpenFile *found = nullptr;
    for (OpenFile *file = open_files; file; file = file->next) {
        if (file->host != &host || file->fileno != fileno) continue;
        if (found && !sds_identity_equal(&found->identity, &file->identity)) return nullptr;
        found = file;
    }
    return found ? hold_file(found) : nullptr;
}

OpenFile *hold_file(OpenFile *file)
{
    __atomic_add_fetch(&file->references, 1, __ATOMIC_RELAXED);
    return file;
}

void release_file(OpenFile *file)
{
    int references = __atomic_load_n(&file->references, __ATOMIC_RELAXED);
    while (references > 1)
        if (__atomic_compare_exchange_n(&file->references, &references, references - 1, true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return;
    {
        // The last one leaves the list, in which another thread may be finding it.
        SharedStateLock lock;
        if (__atomic_sub_fetch(&file->references, 1, __ATOMIC_ACQ_REL) > 0) return;
        OpenFile **link = &open_files;
        while (*link != file)
            link = &(*link)->next;
        *link = file->next;
        if (file->table) __atomic_sub_fetch(&n_tables, 1, __ATOMIC_RELAXED);
        if (file->drops_table) __atomic_sub_fetch(&n_tables_to_drop, 1, __ATOMIC_RELAXED);
    }
    free_file(file);
}

bool is_fresh(OpenFile &file)
{
    // Nearly every read ends here, without the lock.
    if (__atomic_load_n(&file.is_stale, __ATOMIC_ACQUIRE)) return false;
    const int64_t now_ns = coarse_monotonic_ns();
    if (now_ns - __atomic_load_n(&file.checked_ns, __ATOMIC_ACQUIRE) < freshness_interval_ns)
        return true;
    const int saved_errno = errno;
    sds_identity now;
    const bool is_same = sds_identity_of_path(file.path, &now, nullptr, nullptr) == SDS_OK &&
                         sds_identity_equal(&now, &file.identity);
    errno = saved_errno;
    // Others look as well, rather than wait for a file system that is slow to answer.
    if (!is_same) __atomic_store_n(&file.is_stale, true, __ATOMIC_RELEASE);
    __atomic_store_n(&file.checked_ns, now_ns, __ATOMIC_RELEASE);
    return is_same && !__atomic_load_n(&file.is_stale, __ATOMIC_ACQUIRE);
}

bool any_redirects()
{
    return __atomic_load_n(&n_tables, __ATOMIC_RELAXED) != 0;
}

void before_write()
{
    if (__atomic_load_n(&n_tables_to_drop, __ATOMIC_RELAXED) == 0) return;
    SharedStateLock lock;
    for (OpenFile *file = open_files; file; file = file->next) {
        if (!file->drops_table) continue;
        unlink_table(file->path, "the file is being written through the connector");
        file->drops_table = false;
        __atomic_sub_fetch(&n_tables_to_drop, 1, __ATOMIC_RELAXED);
    }
}

void drop_table_of(const char *name)
{
    char canonical[PATH_MAX];
    if (config().redirect && realpath(name, canonical) && has_table(canonical))
        unlink_table(canonical, "the file is being removed through the connector");
}

} // namespace sds::vol
