/* A mounted file system whose reads take as long as those of a striped array of disks.
 *
 *     disk_array --backing=DIR [--osts=N] [--disks=N] [--stripe=BYTES] [--unit=BYTES]
 *                [--min-request=BYTES] [--settle-us=N] [--stroke-us=N] [--rotation-us=N]
 *                [--rate=BYTES/S] [--capacity=BYTES] [--speed=X] -f MOUNTPOINT
 *
 * The files of DIR appear under MOUNTPOINT. Every read is dealt to the disks of an array as
 * SEMANTICS maps bytes (docs/reference/semantics.md): stripes over OSTs round robin, blocks of
 * `unit` bytes over the data disks of an OST round robin, each touched byte widened to its aligned
 * `min-request` bytes of the object. Every disk is a thread with a queue and a head: it serves the
 * request nearest ahead of the head (C-LOOK), and really waits
 *
 *     nothing                                         for what its last request read (its buffer)
 *     transfer                                        where the head already is
 *     gap / rate + transfer                           forwards over a gap that takes less to pass
 *     settle + (stroke - settle) * sqrt(distance / capacity) + rotation + transfer    elsewhere
 *
 * divided by --speed. The read returns when the last of its disks is done. Parity is not read and
 * lies nowhere; writing waits for nothing. The kernel caches nothing of what is read (direct I/O),
 * so that every read is a cold one. `.disks` in MOUNTPOINT holds what each disk did, as JSON.
 *
 * A file lies on every disk of every OST in a region of its own, in the order of first opening.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DISKS = 1024, MAX_FILES = 64, READ_THREADS = 512 };

#define DISKS_FILE "/.disks"

/* Waits shorter than this are not slept: the clock of the disk runs on, and the next wait has it.
 */
#define SHORTEST_SLEEP_S 20e-6

static struct {
    const char *backing;
    unsigned osts, disks;
    uint64_t stripe, unit, min_request, rate, capacity;
    double settle_us, stroke_us, rotation_us, speed;
} option = {.osts = 4,
            .disks = 8,
            .stripe = 1 << 20,
            .unit = 64 << 10,
            .rate = 120000000,
            .capacity = UINT64_C(64) << 30,
            .settle_us = 1000,
            .stroke_us = 16000,
            .rotation_us = 4170,
            .speed = 1};

static int backing_fd;

/* What waits for its last disk. */
typedef struct completion {
    pthread_mutex_t lock;
    pthread_cond_t done;
    unsigned left;
} completion;

/* One contiguous range of one disk. */
typedef struct request {
    struct request *next;
    uint64_t begin, end; /* bytes of the disk */
    completion *completion;
} request;

typedef struct disk {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    request *queue;
    uint64_t last_begin, head; /* its last request, which its buffer still holds */
    double free_at;            /* seconds of CLOCK_MONOTONIC: when its last request is done */
    uint64_t n_requests, n_seeks, n_bytes;
    double busy_s;
} disk;

static disk disks[MAX_DISKS];

typedef struct opened {
    int fd;
    unsigned region; /* of every disk */
} opened;

static struct {
    pthread_mutex_t lock;
    ino_t inode[MAX_FILES];
    unsigned n;
} regions = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned n_disks(void)
{
    return option.osts * option.disks;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_until(double time_s)
{
    const struct timespec until = {.tv_sec = (time_t)time_s,
                                   .tv_nsec = (long)(1e9 * (time_s - floor(time_s)))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
}

/* Takes out of the queue what is nearest ahead of the head, else what lies first. */
static request *take_next(disk *d)
{
    request **ahead = NULL, **first = &d->queue;
    for (request **r = &d->queue; *r != NULL; r = &(*r)->next) {
        if ((*r)->begin < (*first)->begin) first = r;
        if ((*r)->begin >= d->head && (ahead == NULL || (*r)->begin < (*ahead)->begin)) ahead = r;
    }
    request **chosen = ahead != NULL ? ahead : first;
    request *taken = *chosen;
    *chosen = taken->next;
    return taken;
}

/* Seconds until the head stands at a byte; counts seeks. */
static double travel_s(disk *d, uint64_t begin)
{
    if (begin == d->head) return 0;
    const double distance = begin > d->head ? (double)(begin - d->head) : (double)(d->head - begin);
    const double seek_s = 1e-6 * (option.settle_us +
                                  (option.stroke_us - option.settle_us) *
                                      sqrt(fmin(1, distance / (double)option.capacity)) +
                                  option.rotation_us);
    const double pass_s = distance / (double)option.rate;
    if (begin > d->head && pass_s < seek_s) return pass_s;
    d->n_seeks++;
    return seek_s;
}

/* Sets when the disk will have read a range. */
static void move_and_transfer(disk *d, uint64_t begin, uint64_t end)
{
    const double transfer_s = (double)(end - begin) / (double)option.rate;
    const double service_s = (travel_s(d, begin) + transfer_s) / option.speed;
    d->free_at = fmax(d->free_at, now_s()) + service_s;
    d->busy_s += service_s;
    d->n_bytes += end - begin;
    d->last_begin = begin;
    d->head = end;
}

static void complete(completion *c)
{
    pthread_mutex_lock(&c->lock);
    if (--c->left == 0) pthread_cond_signal(&c->done);
    pthread_mutex_unlock(&c->lock);
}

static void *serve_disk(void *argument)
{
    disk *d = argument;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        pthread_mutex_lock(&d->lock);
        while (d->queue == NULL)
            pthread_cond_wait(&d->arrived, &d->lock);
        request *r = take_next(d);
        d->n_requests++;
        if (r->begin < d->last_begin || r->end > d->head) move_and_transfer(d, r->begin, r->end);
        const double free_at = d->free_at;
        pthread_mutex_unlock(&d->lock);
        if (free_at - now_s() > SHORTEST_SLEEP_S) sleep_until(free_at);
        complete(r->completion);
    }
    return NULL;
}

static uint64_t align_down(uint64_t n, uint64_t to)
{
    return n - n % to;
}
static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes of an OST's object that lie before a byte of the file. */
static uint64_t object_bytes_before(uint64_t byte, unsigned ost)
{
    const uint64_t round = option.stripe * option.osts, rest = byte % round;
    const uint64_t begin = option.stripe * ost;
    return byte / round * option.stripe + (rest > begin ? least(rest - begin, option.stripe) : 0);
}

/* Bytes of one disk of an OST that lie before a byte of the object. */
static uint64_t disk_bytes_before(uint64_t byte, unsigned disk_of_ost)
{
    const uint64_t row = option.unit * option.disks, rest = byte % row;
    const uint64_t begin = option.unit * disk_of_ost;
    return byte / row * option.unit + (rest > begin ? least(rest - begin, option.unit) : 0);
}

/* Waits as long as the disks take to read a range of a file. A contiguous range of a file is at
 * most one contiguous range of each disk. */
static void wait_for_disks(unsigned region, uint64_t begin, uint64_t end)
{
    request requests[MAX_DISKS];
    unsigned on_disk[MAX_DISKS], n = 0;
    const uint64_t region_begin = option.capacity / MAX_FILES * region;
    for (unsigned ost = 0; ost < option.osts; ost++) {
        uint64_t object_begin = object_bytes_before(begin, ost);
        uint64_t object_end = object_bytes_before(end, ost);
        if (object_begin == object_end) continue;
        object_begin = align_down(object_begin, option.min_request);
        object_end = align_down(object_end + option.min_request - 1, option.min_request);
        for (unsigned i = 0; i < option.disks; i++) {
            const uint64_t disk_begin = disk_bytes_before(object_begin, i);
            const uint64_t disk_end = disk_bytes_before(object_end, i);
            if (disk_begin == disk_end) continue;
            on_disk[n] = ost * option.disks + i;
            requests[n++] =
                (request){.begin = region_begin + disk_begin, .end = region_begin + disk_end};
        }
    }
    completion all = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .left = n};
    for (unsigned i = 0; i < n; i++) {
        disk *d = &disks[on_disk[i]];
        requests[i].completion = &all;
        pthread_mutex_lock(&d->lock);
        requests[i].next = d->queue;
        d->queue = &requests[i];
        pthread_cond_signal(&d->arrived);
        pthread_mutex_unlock(&d->lock);
    }
    pthread_mutex_lock(&all.lock);
    while (all.left > 0)
        pthread_cond_wait(&all.done, &all.lock);
    pthread_mutex_unlock(&all.lock);
}

/* What each disk did, as JSON; to be freed. */
static char *describe_disks(size_t *n_bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n_bytes);
    if (out == NULL) return NULL;
    for (unsigned i = 0; i < n_disks(); i++) {
        disk *d = &disks[i];
        pthread_mutex_lock(&d->lock);
        fprintf(out,
                "%s{\"ost\": %u, \"disk\": %u, \"requests\": %" PRIu64 ", \"seeks\": %" PRIu64
                ", \"bytes\": %" PRIu64 ", \"busy_s\": %.9f}",
                i == 0 ? "[" : ",\n ", i / option.disks, i % option.disks, d->n_requests,
                d->n_seeks, d->n_bytes, d->busy_s);
        pthread_mutex_unlock(&d->lock);
    }
    fprintf(out, "]\n");
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static unsigned region_of(int fd)
{
    struct stat found;
    if (fstat(fd, &found) != 0) return 0;
    pthread_mutex_lock(&regions.lock);
    unsigned i = 0;
    while (i < regions.n && regions.inode[i] != found.st_ino)
        i++;
    if (i == regions.n) {
        i = regions.n % MAX_FILES;
        regions.inode[i] = found.st_ino;
        if (regions.n < MAX_FILES) regions.n++;
    }
    pthread_mutex_unlock(&regions.lock);
    return i;
}

/* The name, relative to the backing folder, of what is mounted as `path`. */
static const char *name_of(const char *path)
{
    return path[1] == '\0' ? "." : path + 1;
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *info)
{
    (void)info;
    if (strcmp(path, DISKS_FILE) == 0) {
        *out = (struct stat){.st_mode = S_IFREG | 0444, .st_nlink = 1};
        return 0;
    }
    return fstatat(backing_fd, name_of(path), out, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static int list_files(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    (void)offset, (void)info, (void)flags;
    const int fd = openat(backing_fd, name_of(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return -error;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(directory);
    return 0;
}

static int open_backing(const char *path, int flags, mode_t mode, struct fuse_file_info *info)
{
    opened *file = malloc(sizeof *file);
    if (file == NULL) return -ENOMEM;
    /* The backing file is read as usual, whatever the reader of the mounted file asked for. */
    file->fd = openat(backing_fd, name_of(path), (flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (file->fd < 0) {
        free(file);
        return -errno;
    }
    file->region = region_of(file->fd);
    info->fh = (uint64_t)(uintptr_t)file;
    info->direct_io = 1;
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *info)
{
    if (strcmp(path, DISKS_FILE) == 0) {
        info->fh = 0;
        info->direct_io = 1;
        return 0;
    }
    return open_backing(path, info->flags, 0, info);
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return open_backing(path, info->flags | O_CREAT, mode, info);
}

static int read_disks_file(char *buffer, size_t size, off_t offset)
{
    size_t n_bytes;
    char *text = describe_disks(&n_bytes);
    if (text == NULL) return -ENOMEM;
    const size_t begin = least((uint64_t)offset, n_bytes), n = least(size, n_bytes - begin);
    memcpy(buffer, text + begin, n);
    free(text);
    return (int)n;
}

static int read_file(const char *path, char *buffer, size_t size, off_t offset,
                     struct fuse_file_info *info)
{
    (void)path;
    const opened *file = (const opened *)(uintptr_t)info->fh;
    if (file == NULL) return read_disks_file(buffer, size, offset);
    const ssize_t n = pread(file->fd, buffer, size, offset);
    if (n < 0) return -errno;
    if (n > 0) wait_for_disks(file->region, (uint64_t)offset, (uint64_t)(offset + n));
    return (int)n;
}

static int write_file(const char *path, const char *buffer, size_t size, off_t offset,
                      struct fuse_file_info *info)
{
    (void)path;
    const opened *file = (const opened *)(uintptr_t)info->fh;
    if (file == NULL) return -EBADF;
    const ssize_t n = pwrite(file->fd, buffer, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int release_file(const char *path, struct fuse_file_info *info)
{
    (void)path;
    opened *file = (opened *)(uintptr_t)info->fh;
    if (file != NULL) {
        close(file->fd);
        free(file);
    }
    return 0;
}

static int sync_file(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path, (void)data_only;
    const opened *file = (const opened *)(uintptr_t)info->fh;
    return file == NULL || fsync(file->fd) == 0 ? 0 : -errno;
}

static int truncate_file(const char *path, off_t size, struct fuse_file_info *info)
{
    if (info != NULL && info->fh != 0)
        return ftruncate(((const opened *)(uintptr_t)info->fh)->fd, size) == 0 ? 0 : -errno;
    const int fd = openat(backing_fd, name_of(path), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const int result = ftruncate(fd, size) == 0 ? 0 : -errno;
    close(fd);
    return result;
}

static int remove_file(const char *path)
{
    return unlinkat(backing_fd, name_of(path), 0) == 0 ? 0 : -errno;
}

static int make_directory(const char *path, mode_t mode)
{
    return mkdirat(backing_fd, name_of(path), mode) == 0 ? 0 : -errno;
}

static int remove_directory(const char *path)
{
    return unlinkat(backing_fd, name_of(path), AT_REMOVEDIR) == 0 ? 0 : -errno;
}

static int rename_file(const char *from, const char *to, unsigned flags)
{
    return renameat2(backing_fd, name_of(from), backing_fd, name_of(to), flags) == 0 ? 0 : -errno;
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *info)
{
    (void)info;
    return fchmodat(backing_fd, name_of(path), mode, 0) == 0 ? 0 : -errno;
}

static int set_times(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    (void)info;
    return utimensat(backing_fd, name_of(path), times, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static int describe_space(const char *path, struct statvfs *out)
{
    (void)path;
    return fstatvfs(backing_fd, out) == 0 ? 0 : -errno;
}

/* Threads are started here: what is started before fuse_main goes into the background is lost. */
static void *start(struct fuse_conn_info *connection, struct fuse_config *config)
{
    connection->max_background = READ_THREADS;
    connection->congestion_threshold = READ_THREADS;
    connection->want |= connection->capable & FUSE_CAP_ASYNC_DIO;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = 0;
    for (unsigned i = 0; i < n_disks(); i++) {
        pthread_t thread;
        pthread_mutex_init(&disks[i].lock, NULL);
        pthread_cond_init(&disks[i].arrived, NULL);
        if (pthread_create(&thread, NULL, serve_disk, &disks[i]) != 0) {
            fprintf(stderr, "disk_array: no thread for disk %u of %u\n", i, n_disks());
            exit(1);
        }
        pthread_detach(thread);
    }
    return NULL;
}

static const struct fuse_operations operations = {
    .init = start,
    .getattr = get_attributes,
    .readdir = list_files,
    .open = open_file,
    .create = create_file,
    .read = read_file,
    .write = write_file,
    .release = release_file,
    .fsync = sync_file,
    .truncate = truncate_file,
    .unlink = remove_file,
    .mkdir = make_directory,
    .rmdir = remove_directory,
    .rename = rename_file,
    .chmod = change_mode,
    .utimens = set_times,
    .statfs = describe_space,
};

#define OPTION(text, field) {"--" text, offsetof(__typeof__(option), field), 1}

static const struct fuse_opt known_options[] = {
    OPTION("backing=%s", backing),
    OPTION("osts=%u", osts),
    OPTION("disks=%u", disks),
    OPTION("stripe=%" SCNu64, stripe),
    OPTION("unit=%" SCNu64, unit),
    OPTION("min-request=%" SCNu64, min_request),
    OPTION("rate=%" SCNu64, rate),
    OPTION("capacity=%" SCNu64, capacity),
    OPTION("settle-us=%lf", settle_us),
    OPTION("stroke-us=%lf", stroke_us),
    OPTION("rotation-us=%lf", rotation_us),
    OPTION("speed=%lf", speed),
    FUSE_OPT_END,
};

/* Return what is wrong with the options, or NULL. */
static const char *complaint(void)
{
    if (option.backing == NULL) return "name the folder that holds the files: --backing=DIR";
    if (option.osts == 0 || option.disks == 0 || (uint64_t)option.osts * option.disks > MAX_DISKS)
        return "--osts times --disks must be 1 to 1024";
    if (option.stripe == 0 || option.unit == 0 || option.rate == 0 || option.capacity == 0)
        return "--stripe, --unit, --rate and --capacity must be positive";
    if (option.stripe % option.unit != 0) return "--stripe must be a multiple of --unit";
    if (!(option.speed > 0) || option.settle_us < 0 || option.stroke_us < option.settle_us ||
        option.rotation_us < 0)
        return "--speed must be positive, times not negative, and --stroke-us >= --settle-us";
    return NULL;
}

int main(int argc, char *argv[])
{
    struct fuse_args arguments = FUSE_ARGS_INIT(argc, argv);
    if (fuse_opt_parse(&arguments, &option, known_options, NULL) != 0) return 2;
    if (option.min_request == 0) option.min_request = option.unit;
    const char *wrong = complaint();
    if (wrong != NULL) {
        fprintf(stderr, "disk_array: %s\n", wrong);
        return 2;
    }
    backing_fd = open(option.backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (backing_fd < 0) {
        fprintf(stderr, "disk_array: %s: %s\n", option.backing, strerror(errno));
        return 1;
    }
    fuse_opt_add_arg(&arguments, "-oclone_fd,max_threads=512,max_idle_threads=64");
    const int status = fuse_main(arguments.argc, arguments.argv, &operations, NULL);
    fuse_opt_free_args(&arguments);
    return status;
}
