#include "mapping.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "memory_limit.h"

#ifndef F2FS_SUPER_MAGIC
#define F2FS_SUPER_MAGIC 0xF2F52010
#endif
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* A view begins and ends at a multiple of what one entry of a page table can map, as the kernel
 * then places it in memory, too. */
#define VIEW_STEP (INT64_C(2) << 20)

/* Tables take 1/512 of what is mapped, and stay when pages are dropped. */
#define VIEW_TO_RESIDENT 64

struct sds__mapping {
    _Atomic int is_possible;
    int is_in_memory;      /* of the file system */
    _Atomic int n_reads;   /* that could have been from a mapping and found none */
    _Atomic int furthest;  /* that a slow read has come, in 1/FULL */
    _Atomic int n_stuck;   /* slow reads since then that came no further */
    _Atomic int n_skipped; /* reads that are left to calls before the next try */
    _Atomic int was_whole; /* the last read loaded all that it was to */
    _Atomic(sds__view *) kept;
    _Atomic(sds__view *) newest; /* of all that were ever made */
};

/* So many reads that come no further are borne. */
#define MAX_STUCK 4
#define MAX_SKIPPED_LOG2 16
#define FULL (1 << 30)

/* Of this process, and this copy of the core. */
static _Atomic int64_t n_views;

/* Those of disks of this machine. From a network or a file server in user space a page comes at a
 * time, and where it does not come at all, no call can be interrupted; nor do most of them tell
 * what is cached. They are read by calls. */
static int is_local(long type, int *is_in_memory)
{
    *is_in_memory = type == TMPFS_MAGIC;
    switch ((unsigned long)type) {
    case EXT4_SUPER_MAGIC: /* and ext2, ext3 */
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        return 1;
    default:
        return 0;
    }
}

static int is_possible(const sds_file *file, int *is_in_memory)
{
    struct stat found;
    struct statfs system;
    struct rlimit addresses;
    return file->may_map && sds__max_mapped_bytes() > 0 && fstat(file->fd, &found) == 0 &&
           S_ISREG(found.st_mode) && fstatfs(file->fd, &system) == 0 &&
           is_local((long)system.f_type, is_in_memory) &&
           /* Where addresses are limited, what we take the program may lack. */
           getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur == RLIM_INFINITY;
}

/* The file's, made with the first need. */
static sds__mapping *mapping_of(sds_file *file)
{
    sds__mapping *found = atomic_load(&file->mapping);
    if (found != NULL) return found;
    sds__mapping *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    atomic_init(&made->is_possible, is_possible(file, &made->is_in_memory));
    if (atomic_compare_exchange_strong(&file->mapping, &found, made)) return made;
    free(made);
    return found;
}

int sds__can_map(sds_file *file)
{
    if (!file->may_map) return 0;
    const int saved_errno = errno;
    const sds__mapping *mapping = mapping_of(file);
    errno = saved_errno;
    return mapping != NULL && atomic_load(&mapping->is_possible);
}

int sds__may_map(sds_file *file)
{
    if (!sds__can_map(file)) return 0;
    sds__mapping *mapping = atomic_load(&file->mapping);
    if (atomic_load(&mapping->n_skipped) <= 0) return 1;
    atomic_fetch_sub(&mapping->n_skipped, 1);
    return 0;
}

void sds__mapping_ended(sds_file *file, int64_t loaded, int64_t n)
{
    sds__mapping *mapping = atomic_load(&file->mapping);
    const int reached = (int)((double)loaded / (double)n * FULL);
    atomic_store(&mapping->was_whole, loaded == n);
    if (loaded == n || reached > atomic_load(&mapping->furthest)) {
        atomic_store(&mapping->furthest, loaded == n ? 0 : reached);
        atomic_store(&mapping->n_stuck, 0);
        return;
    }
    const int stuck = atomic_fetch_add(&mapping->n_stuck, 1) + 1;
    if (stuck < MAX_STUCK) return;
    const int log2 = stuck < MAX_SKIPPED_LOG2 ? stuck : MAX_SKIPPED_LOG2;
    atomic_store(&mapping->n_skipped, 1 << log2);
}

static int is_within(const sds__view *view, int64_t offset, int64_t length)
{
    return offset >= view->offset && offset - view->offset <= view->length - length;
}

int sds__is_mapped(const sds_file *file, int64_t offset, int64_t length)
{
    sds__mapping *mapping = atomic_load(&file->mapping);
    const sds__view *view = mapping != NULL ? atomic_load(&mapping->kept) : NULL;
    return view != NULL && is_within(view, offset, length);
}

int sds__was_loaded(const sds_file *file, int64_t offset, int64_t length)
{
    sds__mapping *mapping = atomic_load(&file->mapping);
    return sds__is_mapped(file, offset, length) && atomic_load(&mapping->was_whole);
}

int sds__counts_as_mapped(sds_file *file, int64_t offset, int64_t length)
{
    if (sds__is_mapped(file, offset, length)) return 1;
    sds__mapping *mapping = atomic_load(&file->mapping);
    if (mapping == NULL) return 0;
    if (atomic_load(&mapping->n_reads) > 0) return 1;
    atomic_store(&mapping->n_reads, 1);
    return 0;
}

/* Not of one that nobody holds: it is being unmapped. */
static int hold(sds__view *view)
{
    int64_t n = atomic_load(&view->users);
    while (n > 0)
        if (atomic_compare_exchange_weak(&view->users, &n, n + 1)) return 1;
    return 0;
}

static void unmap(sds__view *view)
{
    (void)munmap((void *)(uintptr_t)view->bytes, (size_t)view->length);
    atomic_fetch_sub(&n_views, 1);
}

void sds__view_release(sds__view *view)
{
    if (atomic_fetch_sub(&view->users, 1) == 1) unmap(view);
}

/* The range, all that was mapped before, and as much again, so that few views follow each other. */
static void choose_range(const sds__view *before, int64_t size, int64_t *offset, int64_t *length)
{
    int64_t begin = *offset, end = *offset + *length;
    if (before != NULL) {
        const int64_t before_end = before->offset + before->length;
        if (begin > before->offset)
            begin = before->offset;
        else if (begin < before->offset)
            begin = begin > before->length ? begin - before->length : 0;
        if (end < before_end)
            end = before_end;
        else if (end > before_end)
            end = end > INT64_MAX - before->length ? INT64_MAX : end + before->length;
    }
    begin -= begin % VIEW_STEP;
    if (end < INT64_MAX - VIEW_STEP) end += VIEW_STEP - 1 - (end + VIEW_STEP - 1) % VIEW_STEP;
    /* No further than the file: only its last page may reach past its end. */
    const int64_t page = INT64_C(1) << 16;
    const int64_t file_end = size + (page - 1 - (size + page - 1) % page);
    *offset = begin;
    *length = (end < file_end ? end : file_end) - begin;
}

/* Readable, and not locked: in a program that has called mlockall(MCL_FUTURE), a mapping that can
 * be read is read from the device as a whole, and kept. NULL: refused. */
static void *map_unlocked(int fd, int64_t offset, size_t length)
{
    void *bytes = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, (off_t)offset);
    if (bytes == MAP_FAILED) return NULL;
    if (munlock(bytes, length) == 0 && mprotect(bytes, length, PROT_READ) == 0) return bytes;
    (void)munmap(bytes, length);
    return NULL;
}

static sds__view *map_range(const sds_file *file, sds__mapping *mapping, int64_t offset,
                            int64_t length)
{
    if ((uint64_t)length > SIZE_MAX) return NULL;
    sds__view *view = calloc(1, sizeof *view);
    if (view == NULL) return NULL;
    void *bytes = map_unlocked(file->fd, offset, (size_t)length);
    if (bytes == NULL) {
        atomic_store(&mapping->is_possible, 0); /* and will be refused again */
        free(view);
        return NULL;
    }
    /* Only what is cached is meant to be read here; and nothing of it belongs into a core dump. */
    (void)madvise(bytes, (size_t)length, MADV_RANDOM);
    (void)madvise(bytes, (size_t)length, MADV_DONTDUMP);
    view->bytes = bytes;
    view->offset = offset;
    view->length = length;
    atomic_init(&view->users, 2);
    atomic_fetch_add(&n_views, 1);
    return view;
}

/* One that holds the range, kept from now on instead of the one before. */
static sds__view *make_view(const sds_file *file, sds__mapping *mapping, sds__view *before,
                            int64_t offset, int64_t length)
{
    struct stat found;
    if (fstat(file->fd, &found) != 0 || found.st_size < offset + length) return NULL;
    /* A hole of a file in memory gets memory by being loaded from. */
    if (mapping->is_in_memory && found.st_blocks < found.st_size / 512) return NULL;
    choose_range(before, found.st_size, &offset, &length);
    if (length / VIEW_TO_RESIDENT > sds__max_mapped_bytes()) return NULL;
    sds__view *made = map_range(file, mapping, offset, length);
    if (made == NULL) return NULL;
    sds__view *older = atomic_load(&mapping->newest);
    do
        made->older = older;
    while (!atomic_compare_exchange_weak(&mapping->newest, &older, made));
    sds__view *replaced = before;
    if (atomic_compare_exchange_strong(&mapping->kept, &replaced, made)) {
        if (before != NULL) sds__view_release(before);
    } else {
        sds__view_release(made); /* another thread was quicker: ours goes when it is done with */
    }
    return made;
}

sds__view *sds__view_acquire(sds_file *file, int64_t offset, int64_t length)
{
    sds__mapping *mapping = mapping_of(file);
    if (mapping == NULL || !atomic_load(&mapping->is_possible)) return NULL;
    for (;;) {
        sds__view *kept = atomic_load(&mapping->kept);
        if (kept == NULL || !is_within(kept, offset, length))
            return make_view(file, mapping, kept, offset, length);
        if (hold(kept)) return kept;
    }
}

void sds__view_trim(sds__view *view, int64_t max_bytes)
{
    atomic_store(&view->touched, 0);
    const int64_t resident = sds__resident_file_bytes();
    if (resident < 0 || resident > max_bytes)
        (void)madvise((void *)(uintptr_t)view->bytes, (size_t)view->length, MADV_DONTNEED);
}

/* Looks are so far apart that each may find as much more as this. */
#define LOOKS_PER_BOUND 4
#define MOST_BETWEEN_LOOKS (INT64_C(1) << 30)

int64_t sds__mapped_between_looks(void)
{
    const int64_t part = sds__max_mapped_bytes() / LOOKS_PER_BOUND;
    return part < MOST_BETWEEN_LOOKS ? part : MOST_BETWEEN_LOOKS;
}

void sds__view_touched(sds__view *view, int64_t bytes)
{
    int64_t touched = atomic_fetch_add(&view->touched, bytes) + bytes;
    if (touched > view->length) touched = view->length;
    int64_t n = atomic_load(&n_views);
    if (n < 1) n = 1; /* of a parent that forked while another thread unmapped */
    const int64_t most = sds__max_mapped_bytes() - sds__mapped_between_looks();
    if (touched > most / n) sds__view_trim(view, most);
}

void sds__mapping_free(sds__mapping *mapping)
{
    if (mapping == NULL) return;
    sds__view *next = atomic_load(&mapping->newest);
    while (next != NULL) {
        sds__view *view = next;
        next = view->older;
        /* In the child of a fork, those that threads of the parent used are still held. */
        if (atomic_load(&view->users) > 0) unmap(view);
        free(view);
    }
    free(mapping);
}
