/* A file system that shows the files of a folder in their own place, and whose device fails.
 *
 * usage: failing_fs CONTROL FOLDER [FUSE's options]. CONTROL holds three numbers of 64 bits, which
 * a test changes as it goes: reads that touch bytes from the first one up to the second fail (EIO)
 * in every file; the third counts them. */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int folder; /* opened before it is mounted over */
static struct {
    _Atomic int64_t begin, end, n_failed;
} *control;

static const char *below(const char *path)
{
    return path[1] != '\0' ? path + 1 : ".";
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *info)
{
    (void)info;
    return fstatat(folder, below(path), out, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static int list(const char *path, void *to, fuse_fill_dir_t fill, off_t offset,
                struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    (void)offset, (void)info, (void)flags;
    const int fd = openat(folder, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *open = fd >= 0 ? fdopendir(fd) : NULL;
    if (open == NULL) return -errno;
    for (struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open))
        fill(to, entry->d_name, NULL, 0, 0);
    closedir(open);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *info)
{
    const int fd = openat(folder, below(path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static int read_file(const char *path, char *to, size_t n, off_t offset,
                     struct fuse_file_info *info)
{
    (void)path;
    if (offset < control->end && offset + (off_t)n > control->begin) {
        control->n_failed++;
        return -EIO;
    }
    const ssize_t got = pread((int)info->fh, to, n, offset);
    return got >= 0 ? (int)got : -errno;
}

static int close_file(const char *path, struct fuse_file_info *info)
{
    (void)path;
    return close((int)info->fh) == 0 ? 0 : -errno;
}

/* Inodes are those of the files: SDS knows a file by its own. */
static void *begin(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1;
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
        .init = begin,
        .getattr = get_attributes,
        .readdir = list,
        .open = open_file,
        .read = read_file,
        .release = close_file,
    };
    if (argc < 3) return 2;
    const int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    control = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (folder < 0 || control == MAP_FAILED) {
        perror("failing_fs");
        return 1;
    }
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
