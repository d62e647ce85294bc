/* Reads from a mapping: the bytes of the file, or left to calls. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "exec.h"
#include "mapping.h"
#include "memory_limit.h"
#include "page_cache.h"

#define FILE_BYTES (INT64_C(9) << 20)
#define N_READS 5000 /* of each of two threads */

static uint8_t byte_at(int64_t offset)
{
    return (uint8_t)(1 + ((uint64_t)offset * UINT64_C(0x9E3779B97F4A7C15) >> 33) % 255);
}

static test_directory directory;

static int new_file(void)
{
    char path[128];
    const int fd = create_file(directory, path);
    CHECK(unlink(path) == 0);
    return fd;
}

static void fill(int fd, int64_t begin, int64_t end)
{
    static _Thread_local uint8_t bytes[1 << 16];
    for (int64_t at = begin; at < end;) {
        const int64_t left = end - at;
        const size_t n = left < (int64_t)sizeof bytes ? (size_t)left : sizeof bytes;
        for (size_t i = 0; i < n; i++)
            bytes[i] = byte_at(at + (int64_t)i);
        CHECK(pwrite(fd, bytes, n, at) == (ssize_t)n);
        at += (int64_t)n;
    }
}

static sds_file *open_mapped(int fd)
{
    const sds_file_options options = {.may_map = 1};
    sds_file *file;
    CHECK(sds_file_open(fd, &options, &file) == SDS_OK);
    return file;
}

/* Whether the mapping served all; what is left where it did not is nobody's here. */
static int read_mapped(sds_file *file, const sds__access *access, sds__place *place)
{
    const sds_read_plan plan = {.executor = SDS_EXECUTOR_MAPPED};
    sds_read_report report = {0};
    errno = 77;
    CHECK(sds__run_mapped(file, access, &plan, place, &report) == SDS_OK);
    CHECK(errno == 77);
    return place->piece == sds__access_pieces(access);
}

/* First loads from a page may be too slow to go on, and then the next read comes further. */
static void read_to_the_end(sds_file *file, const sds__access *access, sds__place from)
{
    const time_t begin_s = seconds_now();
    for (int i = 0; !is_in_vain(i, begin_s); i++) {
        sds__place place = from;
        if (read_mapped(file, access, &place)) return;
    }
    CHECK(!"the mapping serves all");
}

static void check_runs_from(sds_file *file, const sds_runs *runs, sds__place from)
{
    const int64_t n = sds_runs_bytes(runs);
    uint8_t *out = malloc((size_t)n);
    CHECK(out != NULL);
    memset(out, 0, (size_t)n);
    const sds__access access = {.runs = runs, .out = out};
    read_to_the_end(file, &access, from);
    const int64_t begin = from.piece * runs->run_bytes + from.bytes;
    sds_run_cursor cursor;
    sds_extent run;
    sds_run_cursor_init(&cursor, runs);
    for (int64_t at = 0; sds_run_cursor_next(&cursor, &run);)
        for (int64_t i = 0; i < run.length; i++, at++)
            CHECK(out[at] == (at < begin ? 0 : byte_at(run.offset + i)));
    free(out);
}

static void runs_are_right(sds_file *file)
{
    static const int64_t lengths[] = {1, 2, 3, 4, 7, 8, 12, 16, 31, 64, 512, 5000, 70000};
    const sds__place start = {0, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t length = lengths[i], stride = length + 4096 - length % 8;
        const int64_t inner = 3 + (int64_t)i, outer = 4000000 / (inner * stride + 11);
        const sds_runs runs = {
            .first_offset = 5 + (int64_t)i,
            .run_bytes = length,
            .n_levels = outer > 1 ? 2 : 1,
            .level = {{outer > 1 ? outer : inner, inner * stride + 11}, {inner, stride}}};
        sds_runs flat = runs;
        if (outer <= 1) flat.level[0].stride_bytes = stride;
        const sds_runs *asked = outer > 1 ? &runs : &flat;
        check_runs_from(file, asked, start);
        const sds__place middle = {sds_runs_pieces(asked) / 2, length / 2};
        check_runs_from(file, asked, middle);
    }
    const sds_runs long_run = {.first_offset = 1, .run_bytes = FILE_BYTES - 1, .n_levels = 0};
    check_runs_from(file, &long_run, start);
    check_runs_from(file, &long_run, (sds__place){0, (INT64_C(3) << 20) + 1});
    const sds_runs long_runs = {.first_offset = 0,
                                .run_bytes = INT64_C(3) << 20,
                                .n_levels = 1,
                                .level = {{2, INT64_C(4) << 20}}};
    check_runs_from(file, &long_runs, start);
    check_runs_from(file, &long_runs, (sds__place){1, 12345});
}

static void lists_are_right(sds_file *file)
{
    enum { N = 3000 };
    static sds_piece pieces[N], scratch[N];
    static uint8_t out[N * 300];
    uint64_t state = 1;
    int64_t position = 0;
    for (int i = 0; i < N; i++) {
        const int64_t length =
            i % 3 ? INT64_C(1) << random_between(&state, 0, 4) : random_between(&state, 1, 300);
        pieces[i] = (sds_piece){random_between(&state, 0, FILE_BYTES - length), length, position};
        position += length;
    }
    sds_pieces_sort(N, pieces, scratch);
    const sds__access access = {.n = N, .pieces = pieces, .out = out};
    read_to_the_end(file, &access, (sds__place){0, 0});
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < pieces[i].length; k++)
            CHECK(out[pieces[i].position + k] == byte_at(pieces[i].offset + k));
}

/* A longer view takes the place of a shorter one, wherever it lies. */
static void views_grow(int fd)
{
    sds_file *file = open_mapped(fd);
    static const int64_t begins[] = {5 << 20, 6 << 20, 1 << 20, 7 << 20, 0, (9 << 20) - 40000};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const sds_runs runs = {
            .first_offset = begins[i] + 3, .run_bytes = 8, .n_levels = 1, .level = {{9, 4096}}};
        check_runs_from(file, &runs, (sds__place){0, 0});
        CHECK(sds__is_mapped(file, begins[i] + 3, 8 * 4096 + 8));
        CHECK(sds__is_mapped(file, begins[0] + 3, 8 * 4096 + 8));
    }
    CHECK(!sds__is_mapped(file, FILE_BYTES, 1 << 20));
    sds_file_close(file);
}

static const sds_runs column = {
    .first_offset = 4000, .run_bytes = 8, .n_levels = 1, .level = {{2000, 4096}}};

static void what_lies_behind_the_end_is_left_to_calls(void)
{
    const int fd = new_file();
    fill(fd, 0, FILE_BYTES);
    sds_file *file = open_mapped(fd);
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    const int64_t end = 4000 + 1999 * 4096 + 8;
    /* Within its last page zeros could be loaded. */
    const int64_t sizes[] = {end - 1, end - 8, end - 4096, 5000, 0};
    for (int i = 0; i < 5; i++) {
        read_to_the_end(file, &access, (sds__place){0, 0});
        CHECK(ftruncate(fd, sizes[i]) == 0);
        sds__place place = {0, 0};
        CHECK(!read_mapped(file, &access, &place) && place.piece == 0 && place.bytes == 0);
        CHECK(sds_read_runs(file, &column, NULL, out, NULL) == SDS_ESHORT);
        fill(fd, sizes[i], FILE_BYTES);
    }
    check_runs_from(file, &column, (sds__place){0, 0});
    sds_file_close(file);
    file = open_mapped(fd);
    const sds_runs behind = {
        .first_offset = FILE_BYTES - 8, .run_bytes = 8, .n_levels = 1, .level = {{2, 4096}}};
    const sds__access past = {.runs = &behind, .out = out};
    sds__place place = {0, 0};
    CHECK(!read_mapped(file, &past, &place) && place.piece == 0);
    sds_file_close(file);
    close(fd);
}

/* Holes are zeros, as they are for calls. */
static void holes_are_zeros(void)
{
    const int fd = new_file();
    fill(fd, 0, FILE_BYTES);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4 << 20) == 0);
    sds_file *file = open_mapped(fd);
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    read_to_the_end(file, &access, (sds__place){0, 0});
    for (int64_t i = 0; i < 16000; i++) {
        const int64_t offset = 4000 + i / 8 * 4096 + i % 8;
        const int is_hole = offset >= 1 << 20 && offset < 5 << 20;
        CHECK(out[i] == (is_hole ? 0 : byte_at(offset)));
    }
    sds_file_close(file);
    close(fd);
}

/* The threads of the storm. A read that the mapping did not serve is the others' to do; one that it
 * served has at each place what the file held there at some time: its byte, or the zero of what was
 * cut off and came back. */
static _Atomic int storm_is_over;
static _Atomic int64_t n_served, n_left;

static void *cut_and_mend(void *context)
{
    const int fd = *(const int *)context;
    uint64_t state = 7;
    while (!atomic_load(&storm_is_over)) {
        const int64_t size =
            random_between(&state, 0, 3) == 0 ? 0 : random_between(&state, 0, FILE_BYTES);
        CHECK(ftruncate(fd, size) == 0);
        if (random_between(&state, 0, 1)) CHECK(ftruncate(fd, FILE_BYTES) == 0);
        fill(fd, size > (8 << 20) ? size : 8 << 20, FILE_BYTES);
        CHECK(ftruncate(fd, FILE_BYTES) == 0);
        usleep((useconds_t)random_between(&state, 0, 400));
    }
    return NULL;
}

/* Until both ways were taken. */
static void *read_in_storm(void *context)
{
    static const int64_t strides[] = {1024, 4096, 4104};
    sds_file *file = context;
    uint8_t *out = malloc(16000);
    CHECK(out != NULL);
    const time_t begin_s = seconds_now();
    for (int i = 0; i < N_READS || n_served == 0 || n_left == 0; i++) {
        CHECK(i < N_READS || !is_in_vain(i - N_READS, begin_s));
        sds_runs runs = column;
        runs.level[0].stride_bytes = strides[i % 3];
        const sds__access access = {.runs = &runs, .out = out};
        sds__place place = {0, 0};
        if (!read_mapped(file, &access, &place)) {
            atomic_fetch_add(&n_left, 1);
            continue;
        }
        atomic_fetch_add(&n_served, 1);
        for (int64_t k = 0; k < 16000; k++) {
            const int64_t offset = 4000 + k / 8 * strides[i % 3] + k % 8;
            CHECK(out[k] == 0 || out[k] == byte_at(offset));
        }
    }
    free(out);
    return NULL;
}

static void truncation_under_reads_is_survived(void)
{
    int fd = new_file();
    fill(fd, 0, FILE_BYTES);
    sds_file *file = open_mapped(fd);
    pthread_t cutter, readers[2];
    CHECK(pthread_create(&cutter, NULL, cut_and_mend, &fd) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&readers[i], NULL, read_in_storm, file) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    atomic_store(&storm_is_over, 1);
    CHECK(pthread_join(cutter, NULL) == 0);
    printf("%lld reads served by the mapping, %lld left to calls\n", (long long)n_served,
           (long long)n_left);
    CHECK(n_served > 0 && n_left > 0);
    sds_file_close(file);
    close(fd);
}

static void *read_many(void *context)
{
    sds_file *file = context;
    for (int i = 0; i < 300; i++) {
        const sds_runs runs = {.first_offset = (i * INT64_C(37) % 80) << 16,
                               .run_bytes = 4,
                               .n_levels = 1,
                               .level = {{100 + i % 50, 8192}}};
        check_runs_from(file, &runs, (sds__place){0, 0});
    }
    return NULL;
}

static void threads_share_a_file(int fd)
{
    sds_file *file = open_mapped(fd);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, read_many, file) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    sds_file_close(file);
}

static int mappings_of_process(void)
{
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    char line[512];
    while (fgets(line, sizeof line, maps) != NULL)
        n += strstr(line, "/sds-test-") != NULL;
    fclose(maps);
    return n;
}

/* How often in n reads it is tried, each of which comes as far as the one before, or further. */
static int tries(int n, int further)
{
    const int fd = new_file();
    CHECK(ftruncate(fd, 4096) == 0);
    sds_file *file = open_mapped(fd);
    int found = 0;
    for (int i = 0; i < n; i++) {
        if (!sds__may_map(file)) continue;
        sds__mapping_ended(file, 100 + (further ? 10 * i : 0), 100000);
        found++;
    }
    sds_file_close(file);
    close(fd);
    return found;
}

static void what_never_pays_is_tried_ever_less(void)
{
    CHECK(tries(1000, 1) == 1000);
    CHECK(tries(100, 0) < 14 && tries(1000, 0) < 15 && tries(100000, 0) < 20);
    CHECK(tries(100, 0) > 4);
}

static void the_second_read_counts_as_mapped(int fd)
{
    sds_file *file = open_mapped(fd);
    CHECK(!sds__counts_as_mapped(file, 0, 8));
    CHECK(sds__may_map(file));
    CHECK(!sds__counts_as_mapped(file, 0, 8));
    CHECK(sds__counts_as_mapped(file, 1 << 20, 8) && !sds__is_mapped(file, 1 << 20, 8));
    sds_file_close(file);
}

/* Locked mappings would be read from the device as a whole. */
static void programs_that_lock_their_memory_lock_no_mapping(int fd)
{
    const pid_t child = fork();
    if (child == 0) {
        if (mlockall(MCL_FUTURE) != 0) _exit(0); /* not allowed here */
        const int64_t before = sds__resident_file_bytes();
        sds_file *file = open_mapped(fd);
        static uint8_t out[16];
        const sds_runs ends = {
            .first_offset = 0, .run_bytes = 8, .n_levels = 1, .level = {{2, FILE_BYTES - 8}}};
        const sds__access access = {.runs = &ends, .out = out};
        read_to_the_end(file, &access, (sds__place){0, 0});
        CHECK(sds__resident_file_bytes() - before < FILE_BYTES / 2);
        sds_file_close(file);
        _exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
}

static void children_read_on(int fd)
{
    sds_file *file = open_mapped(fd);
    check_runs_from(file, &column, (sds__place){0, 0});
    const pid_t child = fork();
    if (child == 0) {
        runs_are_right(file);
        sds_file_close(file);
        _exit(mappings_of_process());
    }
    check_runs_from(file, &column, (sds__place){0, 0});
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
    sds_file_close(file);
}

static void check_never_maps(int fd, const sds_file_options *options)
{
    sds_file *file;
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    sds__place place = {0, 0};
    CHECK(sds_file_open(fd, options, &file) == SDS_OK);
    CHECK(!sds__can_map(file) && !read_mapped(file, &access, &place) && place.piece == 0);
    CHECK(mappings_of_process() == 0);
    sds_file_close(file);
}

static void what_may_not_be_mapped_is_not(int fd)
{
    const sds_file_options allowed = {.may_map = 1}, refused = {.may_map = 0};
    check_never_maps(fd, &refused);
    check_never_maps(fd, NULL);
    const int zeros = open("/dev/zero", O_RDONLY), status = open("/proc/self/status", O_RDONLY);
    CHECK(zeros >= 0 && status >= 0);
    check_never_maps(zeros, &allowed);
    check_never_maps(status, &allowed);
    close(zeros);
    close(status);
    const pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
        limit.rlim_cur = INT64_C(1) << 46;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        check_never_maps(fd, &allowed);
        _exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
}

/* A load from a hole of a file in memory would give it memory. */
static void files_in_memory_are_mapped_where_they_are_whole(void)
{
    struct statfs system;
    if (statfs("/dev/shm", &system) != 0 || system.f_type != 0x01021994 ||
        access("/dev/shm", W_OK) != 0) {
        printf("/dev/shm is no memory that this process may write\n");
        return;
    }
    char path[128];
    const int fd = create_file((test_directory){"/dev/shm", 0}, path);
    CHECK(unlink(path) == 0);
    CHECK(ftruncate(fd, FILE_BYTES) == 0);
    sds_file *file = open_mapped(fd);
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    sds__place place = {0, 0};
    CHECK(sds__can_map(file) && !read_mapped(file, &access, &place) && place.piece == 0);
    fill(fd, 0, FILE_BYTES);
    check_runs_from(file, &column, (sds__place){0, 0});
    sds_file_close(file);
    close(fd);
}

static void blocked_threads_read_by_calls(int fd)
{
    sds_file *file = open_mapped(fd);
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    sigset_t set;
    sds__place place = {0, 0};
    sigfillset(&set);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(!read_mapped(file, &access, &place) && place.piece == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    check_runs_from(file, &column, (sds__place){0, 0});
    sds_file_close(file);
}

/* Whoever looked for the cache may have looked where it is: few pages are waited for. */
static void what_is_not_cached_is_left_to_calls(int fd)
{
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    const time_t begin_s = seconds_now();
    int n_stopped = 0;
    for (int i = 0; n_stopped < 4; i++) {
        CHECK(!is_in_vain(i, begin_s));
        make_cold(fd);
        sds_file *file = open_mapped(fd);
        sds__place place = {0, 0};
        n_stopped += !read_mapped(file, &access, &place) && place.piece < 500;
        sds_file_close(file);
    }
}

/* On one processor: the kernel's counts lag behind by some pages of each. */
static void resident_pages_are_bounded(int fd)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(sds__memory_limit_bytes() > 1 << 20);
    sds_file *file = open_mapped(fd);
    check_runs_from(file, &column, (sds__place){0, 0});
    sds__view *view = sds__view_acquire(file, column.first_offset, column.run_bytes);
    CHECK(view != NULL);
    const int64_t before = sds__resident_file_bytes();
    sds__view_trim(view, before + (1 << 20));
    CHECK(sds__resident_file_bytes() > before - (1 << 20));
    sds__view_trim(view, before - (1 << 20));
    CHECK(sds__resident_file_bytes() < before - (5 << 20));
    sds__view_release(view);
    check_runs_from(file, &column, (sds__place){0, 0});
    sds_file_close(file);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

/* Of a device that fails behind what is cached: the mapping raises SIGBUS, calls say EIO. */
static void device_errors_are_left_to_calls(const char *path)
{
    const int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    sds_file *file = open_mapped(fd);
    static uint8_t out[16000];
    const sds__access access = {.runs = &column, .out = out};
    CHECK(sds__can_map(file));
    for (int i = 0; i < 100; i++) {
        sds__place place = {0, 0};
        CHECK(!read_mapped(file, &access, &place) && place.piece == 0);
        errno = 0;
        CHECK(sds_read_runs(file, &column, NULL, out, NULL) == SDS_EIO && errno == EIO);
    }
    sds_file_close(file);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        device_errors_are_left_to_calls(argv[1]);
        return 0;
    }
    directory = find_directory();
    const int fd = new_file();
    fill(fd, 0, FILE_BYTES);
    sds_file *file = open_mapped(fd);
    struct statfs system;
    CHECK(fstatfs(fd, &system) == 0);
    if (system.f_type == 0x794c7630 && !sds__can_map(file)) {
        printf("%s is an overlay, whose files are not mapped\n", directory.path);
        return EXIT_LEFT_OUT;
    }
    CHECK(sds__can_map(file));
    runs_are_right(file);
    lists_are_right(file);
    CHECK(mappings_of_process() == 1);
    sds_file_close(file);
    CHECK(mappings_of_process() == 0);
    views_grow(fd);
    threads_share_a_file(fd);
    the_second_read_counts_as_mapped(fd);
    what_never_pays_is_tried_ever_less();
    programs_that_lock_their_memory_lock_no_mapping(fd);
    children_read_on(fd);
    what_may_not_be_mapped_is_not(fd);
    blocked_threads_read_by_calls(fd);
    resident_pages_are_bounded(fd);
    if (directory.gives_pages_back) what_is_not_cached_is_left_to_calls(fd);
    files_in_memory_are_mapped_where_they_are_whole();
    if (directory.gives_pages_back) holes_are_zeros(); /* in memory, they are never loaded */
    what_lies_behind_the_end_is_left_to_calls();
    truncation_under_reads_is_survived();
    close(fd);
    return status_of(directory);
}
