#include "open_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "canonical_path.h"
#include "clock.h"
#include "config.h"
#include "decision_log.h"
#include "error_stack.h"
#include "memory_budget.h"
#include "original_file.h"
#include "pass_on.h"
#include "queries.h"
#include "replica.h"
#include "replica_check.h"
#include "sds/file_system.h"
#include "shared_state.h"
#include "source_freshness.h"

namespace sds::vol
{

int n_tables = 0;

namespace
{

OpenFile *open_files = nullptr;

// Files that have been mounted in another one, by HDF5's numbers of them.
struct MountedFile {
    MountedFile *next;
    const Host *host;
    unsigned long fileno;
};
MountedFile *mounted_files = nullptr;
bool lost_mounts = false; // memory was exhausted

// Whether anything is to be known of what is opened.
bool files_are_watched()
{
    return config().trace || config().redirect || config().engine != Engine::never;
}

bool is_sec2(const Host &host, hid_t driver)
{
    if (driver < 0) return false;
    if (host.sec2_driver) return driver == *host.sec2_driver;
    return host.sec2_driver_init && driver == host.sec2_driver_init();
}

bool is_mpio(const Host &host, hid_t driver)
{
    if (driver < 0) return false;
    if (host.mpio_driver) return driver == *host.mpio_driver;
    return host.mpio_driver_init && driver == host.mpio_driver_init();
}

// The path in a name that is given to MPI-IO, which takes what stands before a colon for the kind
// of file system. nullptr where it may be understood in another way.
const char *path_for_mpio(const char *name)
{
    constexpr const char *kinds[] = {"ufs", "nfs", "xfs", "lustre", "gpfs", "panfs"};
    const char *colon = strchr(name, ':');
    if (!colon) return name;
    if (access(name, F_OK) == 0) return nullptr;
    const size_t n = static_cast<size_t>(colon - name);
    for (const char *kind : kinds)
        if (strlen(kind) == n && strncmp(kind, name, n) == 0) return colon + 1;
    return nullptr;
}

bool asks_for_collective_metadata(const Host &host, hid_t fapl)
{
    bool collective = true;
    return !host.hdf5.H5Pget_all_coll_metadata_ops ||
           host.hdf5.H5Pget_all_coll_metadata_ops(fapl, &collective) < 0 || collective;
}

// A driver that holds the file in memory, the only one that takes an image of it from there.
bool is_image_driver(const Host &host, hid_t fapl)
{
    constexpr unsigned long allows_file_image = 0x400; // H5FD_FEAT_ALLOW_FILE_IMAGE
    const hid_t driver = host.hdf5.H5Pget_driver(fapl);
    unsigned long features = 0;
    return driver >= 0 && host.hdf5.H5FDdriver_query(driver, &features) >= 0 &&
           (features & allows_file_image);
}

// Where the table of a file lies; to be freed, nullptr where memory is exhausted.
char *table_path_of(const char *canonical)
{
    char name[64], *path = nullptr;
    sds_table_name(canonical, name);
    return asprintf(&path, "%s/tables/%s", config().home, name) < 0 ? nullptr : path;
}

void unlink_table(const char *canonical, const char *why)
{
    const int saved_errno = errno;
    char *path = table_path_of(canonical);
    if (path && unlink(path) == 0) log_decision("dropped", canonical, "", why);
    free(path);
    errno = saved_errno;
}

// Why a table must not be used; nullptr where it may.
const char *distrust(const sds_table *table, uid_t source_owner)
{
    if (!is_trusted_owner(sds_table_owner(table), source_owner))
        return "the table belongs to neither the source's owner nor this user";
    if (sds_table_mode(table) & (S_IWGRP | S_IWOTH)) return "the table is writable by others";
    return nullptr;
}

// Most tables are of some kilobytes; a list of tiles may take much more.
constexpr int64_t small_table_bytes = 16 << 10;

bool take_memory_of(const sds_table *table)
{
    const int64_t n_bytes = sds_table_bytes(table);
    return n_bytes <= small_table_bytes || take_memory(MemoryUse::lasting, n_bytes);
}

void close_table(sds_table *table)
{
    const int64_t n_bytes = table ? sds_table_bytes(table) : 0;
    sds_table_close(table);
    if (n_bytes > small_table_bytes) give_memory(MemoryUse::lasting, n_bytes);
}

// True where the path is of the file system that the table names, on this device.
bool is_on_instance_of(const sds_table *table, const char *canonical, uint64_t device)
{
    const uint64_t named = sds_table_source_instance(table);
    uint64_t found_device = 0, found = 0;
    return named == SDS_INSTANCE_SHARED ||
           (sds_instance_of_path(canonical, &found_device, &found) == SDS_OK && found == named &&
            found_device == device);
}

// The table that describes this very file; nullptr where there is none that may be used.
sds_table *load_table(const OpenFile &file)
{
    const char *canonical = file.path;
    sds_table *table = nullptr;
    char *path = table_path_of(canonical);
    if (!path) return nullptr;
    const sds_status status = sds_table_open(path, &table);
    const char *reason = nullptr;
    if (status != SDS_OK)
        reason = status != SDS_EIO ? sds_status_text(status)
                 : errno == ENOENT ? "there is none"
                 : errno == EACCES ? "this account may not read it"
                                   : sds_status_text(status);
    if (!reason) reason = distrust(table, file.owner);
    if (!reason && strcmp(sds_table_source_path(table), canonical) != 0)
        reason = "the table is of another path";
    if (!reason && !sds_identity_equal(sds_table_source_identity(table), &file.identity))
        reason = "the source has changed since its replica was made";
    if (!reason && !is_on_instance_of(table, canonical, file.device))
        reason = "mounted anew, or the machine restarted, since the source was compared";
    if (!reason && !take_memory_of(table))
        reason = "the tables of other files take the memory that there is";
    log_decision(reason ? "no-table" : "table", canonical, "", reason ? reason : path);
    free(path);
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
    return pass_on(file, file.below->file_cls.get, file.hdf5().H5VLfile_get, &args,
                   *file.host->default_dxpl, nullptr) >= 0;
}

// How HDF5 has the file open, which may be for writing though it has been asked to open it for
// reading: it opens a file once, and gives out what it has.
unsigned intent_of(const Object &file)
{
    unsigned flags = 0;
    H5VL_file_get_args_t args;
    memset(static_cast<void *>(&args), 0, sizeof args);
    args.op_type = H5VL_FILE_GET_INTENT;
    args.args.get_intent.flags = &flags;
    return pass_on(file, file.below->file_cls.get, file.hdf5().H5VLfile_get, &args,
                   *file.host->default_dxpl, nullptr) < 0
               ? H5F_ACC_RDWR
               : flags;
}

void free_file(OpenFile *file)
{
    close_replicas(file->replicas);
    if (file->original) close_original(file->original);
    close_table(file->table);
    free(file->path);
    free(file->name);
    free(file);
}

// An open file of this name; not in the list yet. nullptr where memory is exhausted.
// canonical: its path, taken over, and its stat; nullptr where the name is none.
OpenFile *make_file(const Host &host, const char *name, char *canonical, const struct stat &now)
{
    auto *file = static_cast<OpenFile *>(calloc(1, sizeof(OpenFile)));
    if (!file) {
        free(canonical);
        return nullptr;
    }
    file->host = &host;
    file->references = 1;
    file->name = strdup(name);
    file->is_path = canonical;
    if (canonical) {
        sds_identity_of_stat(&now, &file->identity);
        file->device = static_cast<uint64_t>(now.st_dev);
        file->owner = now.st_uid;
    }
    file->path = canonical ? canonical : strdup(name);
    if (file->name && file->path) return file;
    free_file(file);
    return nullptr;
}

bool is_same_file(const struct stat &a, const struct stat &b)
{
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_unchanged(const struct stat &before, const struct stat &now)
{
    sds_identity a, b;
    sds_identity_of_stat(&before, &a);
    sds_identity_of_stat(&now, &b);
    return before.st_dev == now.st_dev && sds_identity_equal(&a, &b);
}

// How many descriptors of the process are of this file; 0 where the kernel does not tell.
int count_descriptors_of(const struct stat &file)
{
    DIR *descriptors = opendir("/proc/self/fd");
    if (!descriptors) return 0;
    int n = 0;
    while (const dirent *entry = readdir(descriptors)) {
        struct stat found;
        n += entry->d_name[0] != '.' && fstat(atoi(entry->d_name), &found) == 0 &&
             is_same_file(found, file);
    }
    closedir(descriptors);
    return n;
}

OpenFile *numbered[most_numbered_files + 1];
int last_number = 0;

// With the lock.
void give_number(OpenFile &file)
{
    for (int tries = 0; tries < most_numbered_files; tries++) {
        last_number = last_number % most_numbered_files + 1;
        if (numbered[last_number]) continue;
        file.number = last_number;
        __atomic_store_n(&numbered[last_number], &file, __ATOMIC_RELEASE);
        return;
    }
}

void add_to_list(OpenFile *file)
{
    SharedStateLock lock;
    for (OpenFile *other = open_files; other; other = other->next) {
        // What a writer in this process has not flushed yet shows in no identity.
        if (!file->is_path || !other->is_path || !is_same_file(*file, *other)) continue;
        if (file->writable) {
            __atomic_store_n(&other->is_stale, true, __ATOMIC_RELEASE);
            __atomic_store_n(&other->is_written, true, __ATOMIC_RELEASE);
        }
        if (other->writable) file->is_stale = file->is_written = true;
        // HDF5 opens a file once, in the way of the first time.
        if (other->collective_metadata) file->collective_metadata = true;
    }
    if (file->table) __atomic_add_fetch(&n_tables, 1, __ATOMIC_RELAXED);
    give_number(*file);
    file->next = open_files;
    open_files = file;
}

// Remove the table of a file that is about to be written. It is looked for again after a while:
// one may have been published meanwhile.
void invalidate(OpenFile &file)
{
    const int64_t now_ns = coarse_monotonic_ns();
    const int64_t before_ns = __atomic_load_n(&file.invalidated_ns, __ATOMIC_RELAXED);
    if (before_ns != 0 && now_ns - before_ns < freshness_interval_ns) return;
    __atomic_store_n(&file.invalidated_ns, now_ns, __ATOMIC_RELAXED);
    if (file.is_path && file.writable)
        unlink_table(file.path, "the file is being written through the connector");
}

// A file that HDF5 has opened by itself, at the first write to it. Its name may be relative to
// where the program was then; where that leads nowhere, the table's identity has to do.
OpenFile *reach_file(const Host &host, const char *name)
{
    const int saved_errno = errno;
    struct stat now = {};
    char *canonical = canonical_path_anew(name, now);
    OpenFile *file = make_file(host, name, canonical, now);
    errno = saved_errno;
    if (!file) return nullptr;
    file->writable = true;
    add_to_list(file);
    return file;
}

// See that the object's file is the one that holds it: links and mounts lead into others.
void find_holder(Object &object, H5I_type_t type)
{
    ErrorStackKeeper keep(*object.host);
    PathBuffer name;
    if (!name.text() || !read_file_name(object, type, name.text())) return;
    object.file_holds_it = true;
    if (object.file && strcmp(object.file->name, name.text()) == 0) return;
    OpenFile *holder = find_named(*object.host, name.text());
    if (!holder) holder = reach_file(*object.host, name.text());
    if (!holder) return;
    OpenFile *before = object.file;
    object.file = holder;
    if (before) release_file(before);
}

} // namespace

FileOpening::FileOpening(Host &host, const char *name, unsigned flags, hid_t under_fapl)
    : host_(host), name_(name), flags_(flags), fapl_(under_fapl), path_(name), plain_(false),
      mpio_(false), collective_metadata_(false), image_(false), canonical_(nullptr),
      unchanged_(false), n_descriptors_(0)
{
    if (!files_are_watched()) return;
    const int saved_errno = errno;
    const hid_t driver = host.hdf5.H5Pget_driver(under_fapl);
    plain_ = is_sec2(host, driver);
    mpio_ = !plain_ && is_mpio(host, driver);
    if (mpio_) {
        path_ = path_for_mpio(name);
        plain_ = path_ != nullptr;
        collective_metadata_ = asks_for_collective_metadata(host, under_fapl);
    }
    image_ = !plain_ && !mpio_ && is_image_driver(host, under_fapl);
    if (plain_) canonical_ = canonical_path(path_, before_);
    if (mpio_ && canonical_) n_descriptors_ = count_descriptors_of(before_);
    errno = saved_errno;
}

FileOpening::~FileOpening()
{
    free(canonical_);
}

// Find the path and the stat of the file that HDF5 has opened. Between two looks at a path, another
// file may come to lie there: the descriptor tells which one was opened. fd: HDF5's, negative where
// it cannot be had. False where the file lies nowhere; of one that is written through another
// driver, what lies at its path is taken for it.
bool FileOpening::look_at(int fd, bool writable, struct stat &now)
{
    struct stat after;
    if (fd >= 0 && fstat(fd, &now) != 0) return false;
    unchanged_ = fd >= 0 && canonical_ && is_unchanged(before_, now);
    if (fd >= 0 && canonical_ && is_same_file(before_, now)) return true;
    const bool lay_there = canonical_;
    free(canonical_);
    const char *path = path_ ? path_ : name_;
    canonical_ = fd >= 0 ? canonical_path_of(fd, path, after) : canonical_path_anew(path, after);
    if (!canonical_) return false;
    if (fd >= 0) return is_same_file(after, now);
    now = after;
    // MPI-IO does not show its descriptor.
    unchanged_ = mpio_ && lay_there && is_unchanged(before_, now) &&
                 count_descriptors_of(now) > n_descriptors_;
    return writable || unchanged_;
}

bool FileOpening::may_redirect(const OpenFile &file, unsigned intent) const
{
    return config().redirect && file.is_path && !((flags_ | intent) & H5F_ACC_SWMR_READ) &&
           !(intent & H5F_ACC_RDWR) && unchanged_;
}

// A file that HDF5 reads through its default driver, and that nobody is known to write.
bool FileOpening::may_read_past_hdf5(const OpenFile &file, unsigned intent) const
{
    return config().engine != Engine::never && plain_ && !mpio_ && file.is_path && intent == 0 &&
           !(flags_ & H5F_ACC_SWMR_READ);
}

OpenFile *FileOpening::enter(const Object &opened, bool writable)
{
    unsigned long fileno = 0;
    if (!files_are_watched() || !read_fileno(opened, fileno)) return nullptr;
    const int saved_errno = errno;
    const int fd = plain_ && !mpio_ ? descriptor_of(opened) : -1;
    struct stat now = {};
    // Through whichever driver it is written: readers of the same file are to know.
    const bool may_be_path = plain_ || (writable && !image_);
    const bool is_path = may_be_path && look_at(fd, writable, now);
    OpenFile *file = make_file(host_, name_, is_path ? canonical_ : nullptr, now);
    if (is_path) canonical_ = nullptr; // taken over
    if (file) {
        file->collective_metadata = collective_metadata_;
        file->fileno = fileno;
        file->under = opened.under;
        file->writable = writable;
        file->checked_ns = coarse_monotonic_ns();
        const unsigned intent = writable ? H5F_ACC_RDWR : intent_of(opened);
        if (may_redirect(*file, intent)) file->table = load_table(*file);
        if (may_read_past_hdf5(*file, intent))
            file->original = open_original(opened, fileno, fapl_, fd, now);
        add_to_list(file);
    }
    errno = saved_errno;
    return file;
}

OpenFile *FileOpening::opened(const Object &file)
{
    return enter(file, (flags_ & H5F_ACC_RDWR) != 0);
}

OpenFile *FileOpening::created(const Object &opened)
{
    OpenFile *file = enter(opened, true);
    if (file && config().redirect) invalidate(*file);
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

OpenFile *find_named(const Host &host, const char *name)
{
    SharedStateLock lock;
    OpenFile *found = nullptr;
    for (OpenFile *file = open_files; file; file = file->next)
        if (file->host == &host && strcmp(file->name, name) == 0 && (!found || file->writable))
            found = file;
    return found ? hold_file(found) : nullptr;
}

bool may_read_collectively(const Host &host, const char *name)
{
    SharedStateLock lock;
    bool is_known = false;
    for (const OpenFile *file = open_files; file; file = file->next) {
        if (file->host != &host || strcmp(file->name, name) != 0) continue;
        if (file->collective_metadata) return true;
        is_known = true;
    }
    return !is_known;
}

void remember_close(const Object &file)
{
    if (file.file && file.file->under == file.under)
        __atomic_store_n(&file.file->under, static_cast<const void *>(nullptr), __ATOMIC_RELAXED);
}

bool was_mounted(const OpenFile &file)
{
    SharedStateLock lock;
    const MountedFile *mounted = mounted_files;
    while (mounted && (mounted->host != file.host || mounted->fileno != file.fileno))
        mounted = mounted->next;
    return mounted || lost_mounts;
}

void remember_mount(const Object &child)
{
    if (!files_are_watched()) return;
    auto *mounted = static_cast<MountedFile *>(calloc(1, sizeof(MountedFile)));
    const bool is_known = mounted && read_fileno(child, mounted->fileno);
    SharedStateLock lock;
    if (!is_known) {
        free(mounted);
        lost_mounts = true;
        return;
    }
    mounted->host = child.host;
    mounted->next = mounted_files;
    mounted_files = mounted;
}

OpenFile *numbered_file(int number)
{
    return __atomic_load_n(&numbered[number], __ATOMIC_ACQUIRE); // [0] is never set
}

OpenFile *hold_file(OpenFile *file)
{
    __atomic_add_fetch(&file->references, 1, __ATOMIC_RELAXED);
    return file;
}

bool release_unless_last(OpenFile *file)
{
    int references = __atomic_load_n(&file->references, __ATOMIC_RELAXED);
    while (references > 1)
        if (__atomic_compare_exchange_n(&file->references, &references, references - 1, true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return true;
    return false;
}

void release_file(OpenFile *file)
{
    if (release_unless_last(file)) return;
    {
        // The last one leaves the list, in which another thread may be finding it.
        SharedStateLock lock;
        if (__atomic_sub_fetch(&file->references, 1, __ATOMIC_ACQ_REL) > 0) return;
        OpenFile **link = &open_files;
        while (*link != file)
            link = &(*link)->next;
        *link = file->next;
        if (file->number != 0) numbered[file->number] = nullptr;
        if (file->table) __atomic_sub_fetch(&n_tables, 1, __ATOMIC_RELAXED);
    }
    free_file(file);
}

void before_write(Object &object, H5I_type_t type)
{
    if (!config().redirect && config().engine == Engine::never) return;
    if (!object.file_holds_it) find_holder(object, type);
    if (object.file && config().redirect) invalidate(*object.file);
}

void drop_table_of(const char *name)
{
    if (!config().redirect) return;
    const int saved_errno = errno;
    char *canonical = realpath(name, nullptr);
    if (canonical) unlink_table(canonical, "the file is being removed through the connector");
    free(canonical);
    errno = saved_errno;
}

} // namespace sds::vol
