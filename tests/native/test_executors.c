/* Every executor against plain calls, on warm and cold files, with and without io_uring; and what
 * it makes of reads that fail. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_probe.h"
#include "check.h"
#include "exec.h"
#include "page_cache.h"
#include "ring.h"
#include "sds/io_model.h"
#include "sds/read_engine.h"
#include "threads.h"

#define FILE_BYTES ((4 << 20) + 1234) /* ends within a block */
#define MOST 2000
static uint8_t content[FILE_BYTES];
static uint8_t out[FILE_BYTES + 64];
static sds_piece pieces[MOST], scratch[MOST];
static test_directory directory;
static char path[128];

static const struct {
    sds_executor executor;
    sds__run *run;
} executors[] = {
    {SDS_EXECUTOR_PREAD, sds__run_calls},        {SDS_EXECUTOR_PREAD, sds__run_calls_shared},
    {SDS_EXECUTOR_SIEVE, sds__run_calls_shared}, {SDS_EXECUTOR_SIEVE, sds__run_calls},
    {SDS_EXECUTOR_VECTOR, sds__run_calls},       {SDS_EXECUTOR_LIST, sds__run_list},
    {SDS_EXECUTOR_DIRECT, sds__run_direct}};
#define N_EXECUTORS (sizeof executors / sizeof *executors)

static sds_file *open_file(int fd)
{
    const sds_file_options options = {.path = path, .may_map = 1};
    sds_file *file;
    CHECK(sds_file_open(fd, &options, &file) == SDS_OK);
    return file;
}

/* Once, for reads that are right whether pages stay or not. */
static void ask_to_drop(int fd)
{
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

/* Random levels, innermost first, that stay inside the file. */
static sds_runs random_runs(uint64_t *state)
{
    sds_runs runs = {.first_offset = random_between(state, 0, 8192)};
    runs.run_bytes = random_between(state, 1, random_u64(state) % 4 == 0 ? 300000 : 64);
    sds_level level[4];
    int64_t span = runs.run_bytes;
    int n = 0;
    while (n < 4 && random_u64(state) % 5 != 0) {
        const int64_t widest = random_u64(state) % 2 ? 100 : 60000;
        const int64_t stride = span + random_between(state, 0, widest);
        const int64_t room = (FILE_BYTES - runs.first_offset - span) / stride + 1;
        if (room < 2) break;
        level[n].stride_bytes = stride;
        level[n].count = random_between(state, 2, room < 40 ? room : 40);
        span += (level[n].count - 1) * stride;
        n++;
    }
    runs.n_levels = n;
    for (int l = 0; l < n; l++)
        runs.level[l] = level[n - 1 - l];
    return runs;
}

/* Random pieces, dense or far apart, some overlapping, some long, in any order in memory. */
static int64_t random_pieces(uint64_t *state, size_t *n)
{
    const int64_t spread = INT64_C(1) << random_between(state, 10, 22);
    int64_t position = 0;
    *n = (size_t)random_between(state, 1, random_u64(state) % 3 == 0 ? MOST : 50);
    for (size_t i = 0; i < *n; i++) {
        const int64_t longest = random_u64(state) % 20 == 0 ? 200000 : 20;
        int64_t length = random_between(state, 1, longest);
        const int64_t offset = random_between(state, 0, spread);
        if (length > FILE_BYTES - offset) length = FILE_BYTES - offset;
        if (position + length > FILE_BYTES) {
            *n = i;
            break;
        }
        pieces[i] = (sds_piece){offset, length, position};
        position += length;
    }
    sds_pieces_sort(*n, pieces, scratch);
    return position;
}

static sds_read_plan random_plan(uint64_t *state, sds_executor executor)
{
    static const int64_t holes[] = {SDS__JOIN_NOTHING, SDS__JOIN_TOUCHING, 100, 20000,
                                    SDS__JOIN_ALL};
    return (sds_read_plan){
        .strategy = random_u64(state) % 2 ? SDS_STRATEGY_AUTO : SDS_STRATEGY_PMD,
        .executor = executor,
        .cache = random_u64(state) % 2 ? SDS_CACHE_WARM : SDS_CACHE_COLD,
        .max_hole_bytes = holes[random_u64(state) % 5],
        .group_bytes = random_between(state, 1, 20) * (random_u64(state) % 2 ? 100 : 30000),
        .memory_bytes = random_between(state, 0, 4 << 20),
        .queue_depth = (int32_t)random_between(state, 1, 70),
        .regions_per_request = (int32_t)random_between(state, 1, 64),
    };
}

static int64_t check_runs(const sds_runs *runs, int32_t l, int64_t offset, int64_t at)
{
    if (l == runs->n_levels) {
        CHECK(memcmp(out + at, content + offset, (size_t)runs->run_bytes) == 0);
        return at + runs->run_bytes;
    }
    for (int64_t i = 0; i < runs->level[l].count; i++)
        at = check_runs(runs, l + 1, offset + i * runs->level[l].stride_bytes, at);
    return at;
}

/* To the end, as the dispatcher would after a plan that stopped. */
static void run_to_the_end(sds_file *file, size_t which, const sds__access *access,
                           const sds_read_plan *plan)
{
    sds_read_plan now = *plan;
    sds__place place = {0, 0};
    sds_read_report report = {0};
    for (int n = 0; place.piece < sds__access_pieces(access); n++) {
        const sds__place before = place;
        CHECK(executors[which].run(file, access, &now, &place, &report) == SDS_OK);
        CHECK(place.piece > before.piece ||
              (place.piece == before.piece && place.bytes >= before.bytes));
        if (n > 20) now.cache = SDS_CACHE_UNKNOWN;
        CHECK(n < 30);
    }
    CHECK(report.requests >= 1 && report.bytes_read >= 1);
}

static void test_any_access_by_any_executor(sds_file *file, int n_rounds)
{
    uint64_t state = 77;
    for (int round = 0; round < n_rounds; round++) {
        const size_t which = random_u64(&state) % N_EXECUTORS;
        const sds_read_plan plan = random_plan(&state, executors[which].executor);
        if (random_u64(&state) % 4 == 0) ask_to_drop(file->fd);
        sds__access access = {.out = out};
        sds_runs runs;
        int64_t total = FILE_BYTES + 1;
        if (random_u64(&state) % 2) {
            while (total > FILE_BYTES) {
                runs = random_runs(&state);
                total = sds_runs_bytes(&runs);
            }
            access.runs = &runs;
        } else {
            total = random_pieces(&state, &access.n);
            access.pieces = pieces;
        }
        memset(out, 0x5A, (size_t)total);
        memset(out + total, 0xA5, 16);
        run_to_the_end(file, which, &access, &plan);
        if (access.runs != NULL) CHECK(check_runs(&runs, 0, runs.first_offset, 0) == total);
        for (size_t i = 0; i < access.n; i++)
            CHECK(memcmp(out + pieces[i].position, content + pieces[i].offset,
                         (size_t)pieces[i].length) == 0);
        CHECK(out[total] == 0xA5 && out[total + 15] == 0xA5);
    }
}

static const sds_read_plan queued = {
    .executor = SDS_EXECUTOR_LIST,
    .max_hole_bytes = SDS__JOIN_TOUCHING,
    .group_bytes = 64 << 10,
    .memory_bytes = 4 << 20,
    .queue_depth = 32,
    .regions_per_request = 64,
};

static void test_the_end_of_the_file_is_an_error(sds_file *file)
{
    const sds_piece past[] = {{FILE_BYTES - 5000, 100, 0}, {FILE_BYTES - 100, 101, 200}};
    const sds_piece beyond[] = {{100, 100, 0}, {FILE_BYTES + (INT64_C(1) << 44), 4, 200}};
    const sds_runs across = {FILE_BYTES - 70000, 65536, 1, {{2, 65536}}};
    for (size_t which = 0; which < N_EXECUTORS; which++) {
        sds_read_plan plan = queued;
        const sds__access accesses[] = {{.n = 2, .pieces = past, .out = out},
                                        {.n = 2, .pieces = beyond, .out = out},
                                        {.runs = &across, .out = out}};
        plan.executor = executors[which].executor;
        for (size_t i = 0; i < 3; i++)
            for (int is_cold = 0; is_cold < 2; is_cold++) {
                sds__place place = {0, 0};
                sds_read_report report = {0};
                if (is_cold) ask_to_drop(file->fd);
                CHECK(executors[which].run(file, &accesses[i], &plan, &place, &report) ==
                      SDS_ESHORT);
            }
    }
}

static int count_threads(void)
{
    char text[4096];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(fd >= 0 && n > 0 && close(fd) == 0);
    text[n] = '\0';
    const char *found = strstr(text, "Threads:");
    CHECK(found != NULL);
    return atoi(found + 8);
}

/* Threads that were joined, and those of the kernel that read for a ring, may be on their way out.
 */
static void wait_for_one_thread(void)
{
    WAIT_UNTIL(count_threads() == 1);
}

/* Warm in parts: the plan stops where the cache does, and what is left is read by another. */
static void test_reads_that_turn_cold_and_warm(sds_file *file, sds__run *run_warm)
{
    const sds_runs rows = {100, 50, 1, {{900, 4500}}};
    const sds__access access = {.runs = &rows, .out = out};
    sds_read_plan plan = queued;
    sds__place place = {0, 0};
    sds_read_report report = {0};
    plan.executor = SDS_EXECUTOR_PREAD;
    plan.cache = SDS_CACHE_WARM;
    CHECK(posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM) == 0); /* nothing is read ahead */
    WAIT_UNTIL((make_cold(file->fd), sds__probe_access(file, &access, &place)) == SDS_CACHE_COLD);
    make_warm(file->fd, 0, 300000);
    CHECK(run_warm(file, &access, &plan, &place, &report) == SDS_OK);
    CHECK(place.piece >= 300000 / 4500 && place.piece < 900);
    make_warm(file->fd, 0, FILE_BYTES);
    plan.executor = SDS_EXECUTOR_LIST;
    plan.cache = SDS_CACHE_COLD;
    const sds__place before = place;
    CHECK(sds__run_list(file, &access, &plan, &place, &report) == SDS_OK);
    CHECK(place.piece > before.piece && place.piece < 900); /* found warm */
    plan.executor = SDS_EXECUTOR_PREAD;
    plan.cache = SDS_CACHE_WARM;
    CHECK(run_warm(file, &access, &plan, &place, &report) == SDS_OK);
    CHECK(place.piece == 900);
    CHECK(check_runs(&rows, 0, rows.first_offset, 0) == 45000);
    CHECK(posix_fadvise(file->fd, 0, 0, POSIX_FADV_NORMAL) == 0);
}

/* Few runs and many, near and far, and one: all of what is cached, or nothing that waits. */
static void test_only_what_is_cached(int fd)
{
    static const struct {
        int64_t bytes, count, stride;
    } shapes[] = {{50, 3, 900000}, {50, 3, 100},         {50, 40, 90000}, {8, 900, 4500},
                  {8, 900, 64},    {100000, 30, 120000}, {400000, 1, 0},  {1 << 21, 1, 0}};
    const sds_read_options options = {.only_cached = 1};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sds_runs runs = {100, shapes[i].bytes, 0, {{0, 0}}};
        if (shapes[i].count > 1) runs.n_levels = 1;
        if (shapes[i].count > 1) runs.level[0] = (sds_level){shapes[i].count, shapes[i].stride};
        for (int64_t k = 0; k < shapes[i].count; k++)
            pieces[k] =
                (sds_piece){100 + k * shapes[i].stride, shapes[i].bytes, k * shapes[i].bytes};
        const size_t n = (size_t)shapes[i].count;
        sds_file *file = open_file(fd);
        for (int round = 0; round < 3; round++) { /* the third from a mapping, where that pays */
            make_warm(fd, 0, FILE_BYTES);
            memset(out, 0, sizeof out);
            CHECK(sds_read_runs(file, &runs, &options, out, NULL) == SDS_OK);
            CHECK(check_runs(&runs, 0, 100, 0) == (int64_t)n * shapes[i].bytes);
            memset(out, 0, sizeof out);
            CHECK(sds_read_pieces(file, n, pieces, &options, out, NULL) == SDS_OK);
            CHECK(check_runs(&runs, 0, 100, 0) == (int64_t)n * shapes[i].bytes);
        }
        sds_file_close(file); /* what is mapped stays cached */
        if (!directory.gives_pages_back) continue;
        file = open_file(fd);
        /* A look at a page has the kernel read it: a fast device may bring it before the answer. */
        WAIT_UNTIL((make_cold(fd), sds__probe_byte(file, FILE_BYTES / 2)) == SDS_CACHE_COLD);
        WAIT_UNTIL((make_cold(fd), sds_read_runs(file, &runs, &options, out, NULL)) == SDS_ENOENT);
        WAIT_UNTIL((make_cold(fd), sds_read_pieces(file, n, pieces, &options, out, NULL)) ==
                   SDS_ENOENT);
        sds_file_close(file);
    }
}

/* Buffers of both count towards the bound that a read was given. */
static void test_threads_share_within_the_memory(void)
{
    static const struct {
        int64_t memory_bytes, max_memory_bytes;
        int may_share;
    } cases[] = {{0, 0, 1},         {20000, 0, 1},     {32768, 0, 1},
                 {32769, 0, 0},     {20000, 40000, 1}, {20000, 39999, 0},
                 {20000, 20000, 0}, {0, 1, 1},         {32769, 1 << 20, 0}};
    const sds__place begin = {0, 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sds_read_plan plan = {.executor = SDS_EXECUTOR_SIEVE,
                                    .cache = SDS_CACHE_WARM,
                                    .requests = 900,
                                    .predicted_s = 1,
                                    .memory_bytes = cases[i].memory_bytes,
                                    .max_memory_bytes = cases[i].max_memory_bytes};
        CHECK(sds__may_share_calls(&plan, &begin) == cases[i].may_share);
    }
}

/* Also where a processor is idle, they are made by one thread where there is one processor. */
static void test_many_calls_are_shared_between_two_threads(sds_file *file)
{
    const sds_runs rows = {100, 50, 1, {{900, 4500}}};
    const sds__access access = {.runs = &rows, .out = out};
    sds_read_plan plan = queued;
    plan.cache = SDS_CACHE_WARM;
    plan.requests = 900;
    plan.predicted_s = 1;
    plan.memory_bytes = 0;
    make_warm(file->fd, 0, FILE_BYTES);
    for (int by = 0; by < 4; by++) {
        sds__place place = {0, 0};
        sds_read_report report = {.cache = SDS_CACHE_WARM};
        plan.executor = by % 2 == 0 ? SDS_EXECUTOR_PREAD : SDS_EXECUTOR_SIEVE;
        report.plan = plan;
        memset(out, 0, 45000);
        if (by < 2) {
            CHECK(sds__run_calls_shared(file, &access, &plan, &place, &report) == SDS_OK);
            CHECK(report.queue == SDS_QUEUE_THREADS);
        } else {
            cpu_set_t before, one;
            CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
            CPU_ZERO(&one);
            for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
                if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
            CHECK(sds__run_calls(file, &access, &plan, &place, &report) == SDS_OK);
            CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
            CHECK(report.queue == SDS_QUEUE_NONE);
        }
        CHECK(place.piece == 900 && report.requests == 900 && report.bytes_read == 45000);
        CHECK(check_runs(&rows, 0, rows.first_offset, 0) == 45000);
        wait_for_one_thread();
    }
}

static uint8_t *protected_page;

static void open_page(int signal)
{
    (void)signal;
    if (mprotect(protected_page, 4096, PROT_READ | PROT_WRITE) != 0) _exit(1);
}

static void *write_to(void *page)
{
    *(volatile uint8_t *)page = 7;
    return NULL;
}

/* As collectors of garbage protect pages to learn which are written. */
static void test_handlers_of_faults_run_in_threads(void)
{
    const struct sigaction action = {.sa_handler = open_page};
    struct sigaction before;
    pthread_t thread;
    protected_page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(protected_page != MAP_FAILED && sigaction(SIGSEGV, &action, &before) == 0);
    CHECK(sds__start_threads(1, write_to, protected_page, 0, &thread) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(*protected_page == 7 && munmap(protected_page, 4096) == 0);
    CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
}

/* What the program's handlers and thread-local variables take comes out of the same stack. */
static void *use_stack(void *sum)
{
    volatile uint8_t room[192 << 10];
    for (size_t i = 0; i < sizeof room; i += 1024)
        room[i] = 1;
    *(uint64_t *)sum = room[0] + room[sizeof room - 1024];
    return NULL;
}

static void test_threads_have_room_on_their_stacks(void)
{
    pthread_t thread;
    uint64_t sum = 0;
    CHECK(sds__start_threads(1, use_stack, &sum, 0, &thread) == 1);
    CHECK(pthread_join(thread, NULL) == 0 && sum == 2);
}

/* The file of this process's memory: reads of it fail where a mapping reaches past the end of what
 * is mapped, are short before that, and its offsets lie past 2^42. */
static void test_reads_that_fail_and_are_short(void)
{
    enum { PAGES = 64, PAGE = 4096, HOLE = 40 };
    char mapped[128];
    const int short_fd = create_file(directory, mapped);
    CHECK(unlink(mapped) == 0);
    CHECK(write(short_fd, content, HOLE * PAGE) == HOLE * PAGE);
    uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, short_fd, 0);
    CHECK(memory != MAP_FAILED && close(short_fd) == 0);
    const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    sds_file *file;
    CHECK(fd >= 0 && sds_file_open(fd, NULL, &file) == SDS_OK);
    const int64_t base = (int64_t)(uintptr_t)memory;
    CHECK(base > INT64_C(1) << 42);
    const sds_runs good = {base + 50, 100, 1, {{HOLE * 2, PAGE / 2}}};
    const sds_runs bad = {base + 50, 100, 1, {{PAGES * 2, PAGE / 2}}};
    const sds_runs cut = {base + 50, PAGE * 2 + 7, 1, {{PAGES / 4, PAGE * 4}}};
    for (size_t which = 0; which < N_EXECUTORS; which++)
        for (int i = 0; i < 3; i++) {
            const sds__access access = {.runs = i == 0 ? &good : i == 1 ? &bad : &cut, .out = out};
            sds_read_plan plan = queued;
            sds__place place = {0, 0};
            sds_read_report report = {0};
            plan.executor = executors[which].executor;
            errno = 0;
            memset(out, 0, FILE_BYTES);
            const sds_status status = executors[which].run(file, &access, &plan, &place, &report);
            CHECK(status == (i == 0 ? SDS_OK : SDS_EIO));
            CHECK(errno == (i == 0 ? 0 : EIO));
            for (int64_t k = 0; i == 0 && k < good.level[0].count; k++)
                CHECK(memcmp(out + k * 100, content + 50 + k * PAGE / 2, 100) == 0);
        }
    sds_file_close(file);
    close(fd);
    CHECK(munmap(memory, PAGES * PAGE) == 0);
}

/* A sparse file past 2^42 bytes, where the file system has such. */
static void test_far_offsets(void)
{
    char sparse[128];
    const int fd = create_file(directory, sparse);
    CHECK(unlink(sparse) == 0);
    for (int bits = 33; bits <= 43; bits++) {
        const int64_t at = (INT64_C(1) << bits) - 3;
        if (pwrite(fd, "marker", 6, at) != 6) {
            CHECK(errno == EFBIG && bits > 42); /* ext4 ends at 2^44 bytes */
            continue;
        }
        const sds_piece apart[] = {{at - (INT64_C(1) << 32), 2, 10}, {at, 6, 0}};
        const sds__access access = {.n = 2, .pieces = apart, .out = out};
        const sds_file_options options = {.path = NULL};
        sds_file *file;
        CHECK(sds_file_open(fd, &options, &file) == SDS_OK);
        for (size_t which = 0; which < N_EXECUTORS; which++) {
            sds_read_plan plan = queued;
            plan.executor = executors[which].executor;
            memset(out, 1, 16);
            run_to_the_end(file, which, &access, &plan);
            CHECK(memcmp(out, "marker", 6) == 0 && out[10] == 0 && out[11] == 0);
        }
        sds_file_close(file);
    }
    close(fd);
}

static int n_alarms;
static void count_alarm(int number)
{
    (void)number;
    n_alarms++;
}

static void test_signals_interrupt_nothing(sds_file *file)
{
    const struct sigaction counting = {.sa_handler = count_alarm}; /* without SA_RESTART */
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct sigaction before;
    CHECK(sigaction(SIGALRM, &counting, &before) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    test_any_access_by_any_executor(file, 100);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(sigaction(SIGALRM, &before, NULL) == 0);
    CHECK(n_alarms > 0);
}

static void expect_success(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static sds_queue queue_of(sds_file *file, sds_executor executor)
{
    const sds_runs far = {123, 10, 1, {{64, 65536}}};
    const sds_read_options options = {.executor = executor, .cache = SDS_CACHE_COLD};
    sds_read_report report;
    if (directory.gives_pages_back) make_cold(file->fd);
    CHECK(sds_read_runs(file, &far, &options, out, &report) == SDS_OK);
    CHECK(report.plan.executor == executor && report.requests > 1);
    return report.queue;
}

/* io_uring wherever this process may make a ring, which is asked without SDS. */
static void test_what_keeps_requests_in_flight(sds_file *file)
{
    struct io_uring_params parameters = {0};
    const int ring = (int)syscall(__NR_io_uring_setup, 8, &parameters);
    const sds_queue expected = ring >= 0 ? SDS_QUEUE_RING : SDS_QUEUE_THREADS;
    if (ring >= 0) CHECK(close(ring) == 0);
    CHECK(queue_of(file, SDS_EXECUTOR_LIST) == expected);
    CHECK(queue_of(file, SDS_EXECUTOR_DIRECT) == expected);
    CHECK(queue_of(file, SDS_EXECUTOR_PREAD) == SDS_QUEUE_NONE);
    CHECK(strcmp(sds_queue_name(SDS_QUEUE_THREADS), "threads") == 0 && !sds_queue_name(3));
}

/* Under a filter of system calls no ring is tried: a filter may kill for it, as this one does. */
static void test_threads_under_a_filter(sds_file *file)
{
    const pid_t child = fork();
    if (child == 0) {
        struct sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog filter = {sizeof program / sizeof *program, program};
        sds__ring ring;
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
        CHECK(!sds__ring_open(&ring, 8));
        CHECK(queue_of(file, SDS_EXECUTOR_LIST) == SDS_QUEUE_THREADS);
        CHECK(queue_of(file, SDS_EXECUTOR_DIRECT) == SDS_QUEUE_THREADS);
        test_any_access_by_any_executor(file, 150);
        test_the_end_of_the_file_is_an_error(file);
        test_reads_that_fail_and_are_short();
        wait_for_one_thread();
        _exit(0);
    }
    expect_success(child);
}

/* No descriptor is left for a ring, no thread to be had, no memory to be locked. */
static void test_limits(sds_file *file)
{
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit few = {(rlim_t)file->fd + 1, (rlim_t)file->fd + 1}, none = {0, 0};
        sds__ring ring;
        CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
        test_any_access_by_any_executor(file, 50);
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        int taken = 0;
        while (taken >= 0) /* numbers below that happen to be free */
            taken = dup(file->fd);
        CHECK(!sds__ring_open(&ring, 8));
        test_any_access_by_any_executor(file, 50);
        /* Root has no such limit; in a user namespace there may be no other user. */
        if (geteuid() == 0) CHECK(setresuid(65534, 65534, 65534) == 0 || errno == EINVAL);
        CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
        test_any_access_by_any_executor(file, 50);
        _exit(0);
    }
    expect_success(child);
}

typedef struct {
    sds_file *file;
    int64_t first;
    _Atomic int *stops;
    int64_t n_reads;
} reader;

/* Rows of its own, into memory of its own, warm and cold, until it is stopped or has read enough.
 */
static void *read_rows(void *argument)
{
    reader *self = argument;
    uint8_t *rows = malloc(200 * 700);
    CHECK(rows != NULL);
    while (self->stops != NULL ? !*self->stops : self->n_reads < 20) {
        const sds_runs runs = {self->first + self->n_reads % 100, 700, 1, {{200, 20000}}};
        if (self->n_reads % 7 == 0) ask_to_drop(self->file->fd);
        CHECK(sds_read_runs(self->file, &runs, NULL, rows, NULL) == SDS_OK);
        for (int64_t k = 0; k < 200; k++)
            CHECK(memcmp(rows + k * 700, content + runs.first_offset + k * 20000, 700) == 0);
        self->n_reads++;
    }
    free(rows);
    return NULL;
}

static void test_sixteen_threads_share_a_file(sds_file *file)
{
    pthread_t threads[16];
    reader readers[16];
    for (int i = 0; i < 16; i++) {
        readers[i] = (reader){.file = file, .first = i * 1000};
        CHECK(pthread_create(&threads[i], NULL, read_rows, &readers[i]) == 0);
    }
    for (int i = 0; i < 16; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Children of a process whose other threads are reading read the same file. */
static void test_fork_while_others_read(sds_file *file)
{
    _Atomic int stops = 0;
    pthread_t threads[2];
    reader readers[2];
    for (int i = 0; i < 2; i++) {
        readers[i] = (reader){.file = file, .first = i * 500, .stops = &stops};
        CHECK(pthread_create(&threads[i], NULL, read_rows, &readers[i]) == 0);
    }
    for (int n = 0; n < 15; n++) {
        const pid_t child = fork();
        if (child == 0) {
            reader own = {.file = file, .first = 77, .n_reads = 17};
            alarm(PATIENCE_S); /* a lock that a fork has left locked would never come free */
            (void)read_rows(&own);
            _exit(0);
        }
        expect_success(child);
    }
    stops = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

typedef struct {
    int fd;
    _Atomic int stops;
} shrinker;

static void *shrink_and_grow(void *argument)
{
    shrinker *self = argument;
    while (!self->stops) {
        CHECK(ftruncate(self->fd, 1 << 20) == 0);
        CHECK(pwrite(self->fd, content + (1 << 20), 2 << 20, 1 << 20) == 2 << 20);
    }
    return NULL;
}

/* Either the bytes that are or were there, or a file that ends early; nothing else. */
static void test_a_file_that_shrinks_while_it_is_read(void)
{
    char shrinking[128];
    const int fd = create_file(directory, shrinking);
    CHECK(write(fd, content, 3 << 20) == 3 << 20);
    shrinker other = {.fd = fd};
    pthread_t thread;
    const sds_file_options options = {.path = shrinking};
    sds_file *file;
    CHECK(sds_file_open(fd, &options, &file) == SDS_OK);
    CHECK(pthread_create(&thread, NULL, shrink_and_grow, &other) == 0);
    int n_short = 0;
    uint64_t state = 5;
    const time_t begin_s = seconds_now();
    for (int n = 0; n < 400 || n_short == 0; n++) {
        CHECK(n_short > 0 || !is_in_vain(n, begin_s));
        const size_t which = random_u64(&state) % N_EXECUTORS;
        const sds_runs rows = {12345, 300, 1, {{500, 6000}}};
        const sds__access access = {.runs = &rows, .out = out};
        sds_read_plan plan = random_plan(&state, executors[which].executor);
        sds__place place = {0, 0};
        sds_read_report report = {0};
        const sds_status status = executors[which].run(file, &access, &plan, &place, &report);
        CHECK(status == SDS_OK || status == SDS_ESHORT);
        n_short += status == SDS_ESHORT;
        /* What lies before the cut is never in doubt. */
        for (int64_t k = 0; status == SDS_OK && k < place.piece && k < 170; k++)
            CHECK(memcmp(out + k * 300, content + 12345 + k * 6000, 300) == 0);
    }
    other.stops = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    sds_file_close(file);
    close(fd);
    CHECK(unlink(shrinking) == 0);
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The file that is opened past the page cache is closed with the handle, unless its number was
 * closed by others and is theirs now. */
static void test_the_direct_descriptor(int fd)
{
    const sds_piece ends[] = {{0, 100, 0}, {FILE_BYTES - 1, 1, 100}};
    const sds__access access = {.n = 2, .pieces = ends, .out = out};
    sds_read_plan plan = queued;
    plan.executor = SDS_EXECUTOR_DIRECT;
    for (int is_stolen = 0; is_stolen < 2; is_stolen++) {
        const int n_before = count_descriptors();
        sds_file *file = open_file(fd);
        run_to_the_end(file, N_EXECUTORS - 1, &access, &plan);
        const int direct = file->direct_fd;
        if (direct >= 0) { /* the file system can */
            CHECK(count_descriptors() == n_before + 1 && direct > STDERR_FILENO);
            CHECK((fcntl(direct, F_GETFD) & FD_CLOEXEC) != 0);
            if (is_stolen) {
                const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
                CHECK(null >= 0 && dup2(null, direct) == direct && close(null) == 0);
                memset(out, 0, 101);
                run_to_the_end(file, N_EXECUTORS - 1, &access, &plan);
                CHECK(memcmp(out, content, 100) == 0 && out[100] == content[FILE_BYTES - 1]);
                CHECK(!sds__may_read_directly(file));
            }
        }
        sds_file_close(file);
        if (direct >= 0 && is_stolen) CHECK(close(direct) == 0);
        CHECK(count_descriptors() == n_before);
    }
}

#define N_APART 160
#define APART_BYTES 32768
#define APART_STRIDE 131072
#define APART_PERIOD (FILE_BYTES / APART_STRIDE * APART_STRIDE) /* of what the file holds */

/* By a handle of its own, as another program would; by which executor. */
static sds_executor executor_of_apart(int fd, const char *name, int64_t offset)
{
    sds_io_parameters costs;
    sds_io_parameters_builtin(&costs);
    costs.is_measured = 1;
    costs.direct_s_per_byte = costs.buffered_s_per_byte / 2;
    const sds_file_options options = {.path = name, .parameters = &costs};
    const sds_runs runs = {offset, APART_BYTES, 1, {{N_APART, APART_STRIDE}}};
    uint8_t *read = calloc(N_APART, APART_BYTES);
    sds_read_report report;
    sds_file *file;
    CHECK(read != NULL && sds_file_open(fd, &options, &file) == SDS_OK);
    CHECK(sds_read_runs(file, &runs, NULL, read, &report) == SDS_OK);
    for (int64_t i = 0; i < N_APART; i++) {
        const uint8_t *expected = content + (offset + i * APART_STRIDE) % APART_PERIOD;
        CHECK(memcmp(read + i * APART_BYTES, expected, APART_BYTES) == 0);
    }
    const int is_possible = sds__may_read_directly(file);
    sds_file_close(file);
    free(read);
    return is_possible ? report.plan.executor : SDS_EXECUTOR_ANY;
}

/* The last bytes of some runs are left in the page cache: until the device has brought them. */
static void wait_for_marks(int fd, int64_t offset)
{
    for (int64_t n = 1; n <= 8; n++) {
        const int64_t end = offset + N_APART * n / 9 * APART_STRIDE + APART_BYTES;
        WAIT_UNTIL(pages_cached(fd, end - 1, 1) == 1);
    }
}

/* The next read of the same, or of what follows it, finds it in the page cache or brings it there,
 * whoever reads; until the cache has forgotten. */
static void test_only_the_first_read_goes_past_the_cache(void)
{
    char name[128];
    const int fd = create_file(directory, name);
    for (int64_t at = 0; at < (N_APART + 1) * APART_STRIDE; at += APART_STRIDE)
        CHECK(pwrite(fd, content + at % APART_PERIOD, APART_STRIDE, at) == APART_STRIDE);
    CHECK(fsync(fd) == 0);
    for (int64_t offset = 0; offset <= 2048; offset += 2048) { /* within pages, and not */
        make_cold(fd);
        const sds_executor first = executor_of_apart(fd, name, offset);
        if (first == SDS_EXECUTOR_ANY) break; /* the file system cannot */
        CHECK(first == SDS_EXECUTOR_DIRECT);
        wait_for_marks(fd, offset);
        CHECK(executor_of_apart(fd, name, offset) == SDS_EXECUTOR_LIST);
        CHECK(executor_of_apart(fd, name, offset) == SDS_EXECUTOR_PREAD);
        make_cold(fd);
        CHECK(executor_of_apart(fd, name, offset) == SDS_EXECUTOR_DIRECT);
        wait_for_marks(fd, offset);
        CHECK(executor_of_apart(fd, name, offset + APART_BYTES) == SDS_EXECUTOR_LIST);
    }
    CHECK(close(fd) == 0 && unlink(name) == 0);
}

/* Whether a child could lock the file's first byte. */
static int is_locked(int fd)
{
    const pid_t child = fork();
    if (child == 0) {
        struct flock wanted = {.l_type = F_WRLCK, .l_len = 1};
        _exit(fcntl(fd, F_GETLK, &wanted) == 0 && wanted.l_type == F_UNLCK);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

/* No read takes a lock of the program's from it, by whatever it opens meanwhile. */
static void test_locks_outlive_reads(void)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const sds_piece ends[] = {{0, 100, 0}, {FILE_BYTES - 1, 1, 100}};
    const sds__access access = {.n = 2, .pieces = ends, .out = out};
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
    CHECK(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0 && is_locked(fd));
    sds_file *file = open_file(fd);
    for (size_t which = 0; which < N_EXECUTORS; which++) {
        sds_read_plan plan = queued;
        plan.executor = executors[which].executor;
        run_to_the_end(file, which, &access, &plan);
        CHECK(is_locked(fd));
    }
    sds_file_close(file);
    close(fd);
}

/* A handle whose path names another file by now reads its own. */
static void test_a_path_that_names_another_file(int fd)
{
    const sds_file_options options = {.path = "/etc/passwd"};
    const sds_piece begin = {10, 100, 0};
    const sds__access access = {.n = 1, .pieces = &begin, .out = out};
    sds_read_plan plan = queued;
    sds_file *file;
    plan.executor = SDS_EXECUTOR_DIRECT;
    CHECK(sds_file_open(fd, &options, &file) == SDS_OK);
    run_to_the_end(file, N_EXECUTORS - 1, &access, &plan);
    CHECK(memcmp(out, content + 10, 100) == 0 && !sds__may_read_directly(file));
    sds_file_close(file);
}

int main(void)
{
    directory = find_directory();
    const int fd = create_file(directory, path);
    uint64_t state = 9;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)random_u64(&state);
    CHECK(write(fd, content, sizeof content) == FILE_BYTES && fsync(fd) == 0);
    const int n_descriptors = count_descriptors();
    sds_file *file = open_file(fd);
    test_any_access_by_any_executor(file, 600);
    test_the_end_of_the_file_is_an_error(file);
    if (directory.gives_pages_back) {
        test_reads_that_turn_cold_and_warm(file, sds__run_calls);
        test_reads_that_turn_cold_and_warm(file, sds__run_calls_shared);
    }
    test_only_what_is_cached(fd);
    test_many_calls_are_shared_between_two_threads(file);
    test_threads_share_within_the_memory();
    test_handlers_of_faults_run_in_threads();
    test_threads_have_room_on_their_stacks();
    test_reads_that_fail_and_are_short();
    test_far_offsets();
    test_signals_interrupt_nothing(file);
    test_what_keeps_requests_in_flight(file);
    test_threads_under_a_filter(file);
    test_limits(file);
    test_sixteen_threads_share_a_file(file);
    test_fork_while_others_read(file);
    test_a_file_that_shrinks_while_it_is_read();
    test_the_direct_descriptor(fd);
    test_a_path_that_names_another_file(fd);
    test_locks_outlive_reads();
    if (directory.gives_pages_back) test_only_the_first_read_goes_past_the_cache();
    wait_for_one_thread();
    sds_file_close(file);
    CHECK(count_descriptors() == n_descriptors);
    close(fd);
    CHECK(unlink(path) == 0);
    return status_of(directory);
}
