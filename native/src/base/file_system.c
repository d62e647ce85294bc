#include "sds/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define OVERLAY 0x794C7630

/* By f_type of statfs(2); linux/magic.h lacks some. What is not here is of an unknown kind. */
static const struct {
    uint32_t type;
    int32_t kind;
} known[] = {
    {0xEF53, SDS_FILE_SYSTEM_DISK},        /* ext2, ext3, ext4 */
    {0x58465342, SDS_FILE_SYSTEM_DISK},    /* XFS */
    {0x9123683E, SDS_FILE_SYSTEM_DISK},    /* Btrfs */
    {0xF2F52010, SDS_FILE_SYSTEM_DISK},    /* F2FS */
    {0x2FC12FC1, SDS_FILE_SYSTEM_DISK},    /* ZFS */
    {OVERLAY, SDS_FILE_SYSTEM_DISK},       /* if what holds the file is a disk's: see below */
    {0x01021994, SDS_FILE_SYSTEM_MEMORY},  /* tmpfs */
    {0x858458F6, SDS_FILE_SYSTEM_MEMORY},  /* ramfs */
    {0x73717368, SDS_FILE_SYSTEM_IMAGE},   /* SquashFS */
    {0xE0F5E1E2, SDS_FILE_SYSTEM_IMAGE},   /* EROFS */
    {0x9660, SDS_FILE_SYSTEM_IMAGE},       /* ISO 9660 */
    {0x6969, SDS_FILE_SYSTEM_SERVER},      /* NFS */
    {0x0BD00BD0, SDS_FILE_SYSTEM_CLUSTER}, /* Lustre */
    {0x47504653, SDS_FILE_SYSTEM_CLUSTER}, /* GPFS */
    {0x19830326, SDS_FILE_SYSTEM_CLUSTER}, /* BeeGFS */
    {0x00C36400, SDS_FILE_SYSTEM_CLUSTER}, /* Ceph */
};

static int32_t kind_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type) return known[i].kind;
    return SDS_FILE_SYSTEM_UNKNOWN;
}

/* FNV-1a, of 64 bits. */
#define HASH_START 0xCBF29CE484222325u

static uint64_t hash_of(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
    return hash;
}

/* The text of a small file of the kernel, less than room; 0: none. */
static size_t read_text(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, room);
    close(fd);
    return got > 0 && (size_t)got < room ? (size_t)got : 0;
}

/* Which start of the machine this is; 0: unknown. */
static uint64_t boot_hash(void)
{
    static _Atomic uint64_t found;
    uint64_t hash = atomic_load_explicit(&found, memory_order_relaxed);
    char text[64];
    const size_t n =
        hash == 0 ? read_text("/proc/sys/kernel/random/boot_id", text, sizeof text) : 0;
    if (n > 0) {
        hash = hash_of(HASH_START, text, n);
        atomic_store_explicit(&found, hash, memory_order_relaxed);
    }
    return hash;
}

/* How many disks and media the kernel had met when it met this one; 0: unknown. Another image in
 * the same loop device is another medium. */
static uint64_t disk_number(uint64_t device)
{
    static const char *const names[] = {"diskseq", "../diskseq"}; /* the latter of partitions */
    for (size_t i = 0; major(device) != 0 && i < sizeof names / sizeof *names; i++) {
        char path[64], text[32];
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(device), minor(device),
                 names[i]);
        const size_t n = read_text(path, text, sizeof text);
        if (n == 0) continue;
        text[n] = 0;
        return strtoull(text, NULL, 10);
    }
    return 0;
}

/* A mount, as far as the kernel tells. */
typedef struct mounted {
    uint64_t number; /* unique since the machine was started; 0: unknown */
    uint64_t device;
    uint64_t instance;
} mounted;

static uint64_t instance_of(const struct statfs *system, const mounted *found)
{
    const int32_t kind = kind_of((uint32_t)system->f_type);
    if (kind == SDS_FILE_SYSTEM_SERVER || kind == SDS_FILE_SYSTEM_CLUSTER)
        return SDS_INSTANCE_SHARED;
    const uint64_t boot = boot_hash();
    uint64_t number = 0;
    if (kind == SDS_FILE_SYSTEM_IMAGE)
        number = found->number;
    else if (kind == SDS_FILE_SYSTEM_DISK && found->number != 0)
        number = disk_number(found->device);
    if (boot == 0 || (kind == SDS_FILE_SYSTEM_IMAGE && number == 0) ||
        (kind != SDS_FILE_SYSTEM_IMAGE && kind != SDS_FILE_SYSTEM_DISK))
        return SDS_INSTANCE_UNKNOWN;
    const uint32_t type = (uint32_t)system->f_type;
    uint64_t hash = hash_of(boot, &type, sizeof type);
    hash = hash_of(hash, &system->f_fsid, sizeof system->f_fsid);
    hash = hash_of(hash, &number, sizeof number) >> 1;
    return hash > SDS_INSTANCE_UNKNOWN ? hash : SDS_INSTANCE_UNKNOWN + 1;
}

/* Mounts that this process has asked about; each entry is set once and never changed. What
 * finds no room is asked about each time. */
#define MAX_MOUNTS 16
static _Atomic(mounted *) mounts[MAX_MOUNTS];

static const mounted *find_mount(uint64_t number)
{
    for (int i = 0; i < MAX_MOUNTS; i++) {
        const mounted *one = atomic_load_explicit(&mounts[i], memory_order_acquire);
        if (one == NULL) return NULL;
        if (one->number == number) return one;
    }
    return NULL;
}

static void keep_mount(const mounted *found)
{
    mounted *kept = found->number != 0 ? malloc(sizeof *kept) : NULL;
    if (kept == NULL) return;
    *kept = *found;
    for (int i = 0; i < MAX_MOUNTS; i++) {
        mounted *empty = NULL;
        if (atomic_compare_exchange_strong(&mounts[i], &empty, kept)) return;
    }
    free(kept);
}

/* Number of the mount and of the device. fd: of an empty path. */
static sds_status look_at(int fd, const char *path, mounted *out)
{
#ifdef STATX_BASIC_STATS
    /* Not in the headers of older systems. */
    enum { MNT_ID_UNIQUE = 0x4000, MNT_ID_AT = 0x90 };
    struct statx told;
    const int flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | (fd >= 0 ? AT_EMPTY_PATH : 0);
    if (statx(fd >= 0 ? fd : AT_FDCWD, path, flags, MNT_ID_UNIQUE, &told) == 0) {
        out->device = (uint64_t)makedev(told.stx_dev_major, told.stx_dev_minor);
        if (told.stx_mask & MNT_ID_UNIQUE)
            memcpy(&out->number, (const char *)&told + MNT_ID_AT, sizeof out->number);
        return SDS_OK;
    }
    if (errno != ENOSYS && errno != EPERM) return SDS_EIO;
#endif
    struct stat found;
    if ((fd >= 0 ? fstat(fd, &found) : stat(path, &found)) != 0) return SDS_EIO;
    out->device = (uint64_t)found.st_dev;
    return SDS_OK;
}

/* Find the instance of a mount that was looked at by path. What lies at the path may have changed
 * since: then the instance is unknown. */
static sds_status find_instance(const char *path, mounted *found)
{
    struct statfs system;
    mounted again = {0};
    if (statfs(path, &system) != 0 || look_at(-1, path, &again) != SDS_OK) return SDS_EIO;
    found->instance = SDS_INSTANCE_UNKNOWN;
    if (again.number != found->number || again.device != found->device) return SDS_OK;
    found->instance = instance_of(&system, found);
    keep_mount(found);
    return SDS_OK;
}

sds_status sds_instance_of_path(const char *path, uint64_t *device, uint64_t *instance)
{
    mounted found = {0};
    if (look_at(-1, path, &found) != SDS_OK) return SDS_EIO;
    const mounted *kept = found.number != 0 ? find_mount(found.number) : NULL;
    if (kept == NULL && find_instance(path, &found) != SDS_OK) return SDS_EIO;
    *device = found.device;
    *instance = kept != NULL ? kept->instance : found.instance;
    return SDS_OK;
}

/* Whether a disk's file system holds the file: it knows where its bytes lie. */
static int has_extents(int fd)
{
    struct fiemap map = {.fm_length = 1};
    return ioctl(fd, FS_IOC_FIEMAP, &map) == 0;
}

sds_status sds_file_system_of_fd(int fd, sds_file_system *out)
{
    struct statfs system;
    mounted found = {0};
    if (fstatfs(fd, &system) != 0 || look_at(fd, "", &found) != SDS_OK) return SDS_EIO;
    out->type = (uint32_t)system.f_type;
    out->kind = kind_of(out->type);
    if (out->type == OVERLAY && !has_extents(fd)) out->kind = SDS_FILE_SYSTEM_MEMORY;
    out->instance = instance_of(&system, &found);
    return SDS_OK;
}
