/* Lists of regions against what copying their bytes one by one does. */
#include "sds/list_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

#define FILE_BYTES 4096
#define MEMORY_BYTES 8192
#define MOST 400

static uint8_t content[FILE_BYTES];
static uint8_t memory[MEMORY_BYTES];
static int64_t file_offsets[MOST], file_lengths[MOST], memory_offsets[MOST], memory_lengths[MOST];
static uint64_t state = 77;

/* Instead of libc's: writes now and then less than asked for, or nothing because of a signal. */
static int is_shaken;
static int64_t shaken_bytes(size_t n)
{
    if (!is_shaken || random_u64(&state) % 3) return (int64_t)n;
    errno = EINTR;
    return random_u64(&state) % 4 ? random_between(&state, 1, (int64_t)n) : -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    const int64_t some = shaken_bytes(n);
    return some < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, (size_t)some, offset);
}

ssize_t pwritev(int fd, const struct iovec *vectors, int n, off_t offset)
{
    switch (is_shaken ? random_u64(&state) % 4 : 0) {
    case 1:
        errno = EINTR;
        return -1;
    case 2:
        n = (int)random_between(&state, 1, n);
        return syscall(SYS_pwritev, fd, vectors, n, offset, 0);
    case 3: /* a part of the first */
        return syscall(SYS_pwrite64, fd, vectors->iov_base,
                       (size_t)random_between(&state, 1, (int64_t)vectors->iov_len), offset);
    default:
        return syscall(SYS_pwritev, fd, vectors, n, offset, 0);
    }
}

/* Cut so many bytes into regions within a range. */
static sds_regions random_regions(int64_t total, int64_t within, int64_t offsets[],
                                  int64_t lengths[])
{
    const uint64_t kind = random_u64(&state) % 4;
    const int64_t longest = random_between(&state, 1, 1 << random_between(&state, 0, 9));
    int64_t at = random_between(&state, 0, 20);
    size_t n = 0;
    while (total > 0 && n < MOST - 2) {
        int64_t length = random_between(&state, 0, longest < total ? longest : total);
        if (n == MOST - 3) length = total;
        if (kind == 0) at = random_between(&state, 0, within - length); /* anywhere */
        if (at + length > within) at = random_between(&state, 0, within - length);
        offsets[n] = at;
        lengths[n++] = length;
        total -= length;
        if (kind != 1) at += length + random_between(&state, 0, 3); /* else one on the other */
        if (kind == 2) at += 40;
    }
    if (random_u64(&state) % 2) {
        offsets[n] = INT64_MAX; /* of nothing: anywhere is right in a file */
        lengths[n] = 0;
        n += within == FILE_BYTES;
    }
    return (sds_regions){.n = n, .offsets = offsets, .lengths = lengths};
}

static sds_list random_list(void)
{
    const int64_t total = random_between(&state, 0, 3000);
    return (sds_list){
        .in_file = random_regions(total, FILE_BYTES, file_offsets, file_lengths),
        .in_memory = random_regions(total, MEMORY_BYTES, memory_offsets, memory_lengths),
        .is_packed = random_u64(&state) % 4 == 0,
        .memory_bytes = MEMORY_BYTES,
    };
}

/* The bytes of regions, one after the other; their number. */
static int64_t places_of(const sds_regions *regions, int64_t places[])
{
    int64_t n = 0;
    for (size_t i = 0; i < regions->n; i++)
        for (int64_t k = 0; k < regions->lengths[i]; k++)
            places[n++] = regions->offsets[i] + k;
    return n;
}

static int64_t file_places[MEMORY_BYTES], memory_places[MEMORY_BYTES];

static int64_t places_of_list(const sds_list *list)
{
    const int64_t n = places_of(&list->in_file, file_places);
    if (list->is_packed)
        for (int64_t i = 0; i < n; i++)
            memory_places[i] = i;
    else
        CHECK(places_of(&list->in_memory, memory_places) == n);
    return n;
}

static void test_pieces_move_what_the_lists_say(void)
{
    static uint8_t expected[MEMORY_BYTES], found[MEMORY_BYTES];
    for (int round = 0; round < 4000; round++) {
        const sds_list list = random_list();
        const int64_t n_bytes = places_of_list(&list);
        const int into_file = round % 2;
        uint8_t *from = into_file ? memory : content;
        memset(expected, 0xA5, sizeof expected);
        memset(found, 0xA5, sizeof found);
        for (int64_t i = 0; i < n_bytes; i++)
            if (into_file)
                expected[file_places[i]] = from[memory_places[i]];
            else
                expected[memory_places[i]] = from[file_places[i]];
        size_t n;
        sds_piece *pieces;
        sds_list_fault fault;
        CHECK(sds_list_pieces(&list, into_file ? SDS_LIST_INTO_FILE : SDS_LIST_INTO_MEMORY, &n,
                              &pieces, &fault) == SDS_OK);
        CHECK(!fault.is_set && (n == 0) == (pieces == NULL));
        for (size_t i = 0; i < n; i++) {
            const sds_piece *piece = &pieces[i];
            CHECK(piece->length > 0);
            if (i > 0) {
                CHECK(piece[-1].offset <= piece->offset);
                CHECK(piece[-1].offset + piece[-1].length != piece->offset ||
                      piece[-1].position + piece[-1].length != piece->position);
            }
            for (int64_t k = 0; k < piece->length; k++) {
                const int64_t to = into_file ? piece->offset + k : piece->position + k;
                const int64_t of = into_file ? piece->position + k : piece->offset + k;
                CHECK(found[to] == 0xA5); /* disjoint in the target: content has no such byte */
                found[to] = from[of];
            }
        }
        CHECK(memcmp(expected, found, sizeof found) == 0);
        free(pieces);
    }
}

static void test_reading_equals_byte_by_byte(int fd)
{
    static uint8_t expected[MEMORY_BYTES], found[MEMORY_BYTES];
    sds_file *file;
    CHECK(sds_file_open(fd, NULL, &file) == SDS_OK);
    for (int round = 0; round < 2000; round++) {
        const sds_list list = random_list();
        const int64_t n_bytes = places_of_list(&list);
        memset(expected, 0xA5, sizeof expected);
        memset(found, 0xA5, sizeof found);
        for (int64_t i = 0; i < n_bytes; i++)
            expected[memory_places[i]] = content[file_places[i]];
        const sds_read_options options = {.strategy = (sds_strategy)(round % 5)};
        sds_read_report report;
        sds_list_fault fault;
        CHECK(sds_read_list(file, &list, found, &options, &report, &fault) == SDS_OK);
        CHECK(!fault.is_set && report.plan.strategy == options.strategy);
        CHECK(report.bytes_read >= (n_bytes > 0));
        CHECK(memcmp(expected, found, sizeof found) == 0);
    }
    sds_file_close(file);
}

static void test_what_the_file_lacks_is_refused_before_anything_is_read(int fd)
{
    static uint8_t out[64], before[64];
    memset(out, 0x5A, sizeof out);
    memset(before, 0x5A, sizeof before);
    sds_file *file;
    CHECK(sds_file_open(fd, NULL, &file) == SDS_OK);
    const int64_t offsets[] = {0, FILE_BYTES + 9, FILE_BYTES - 7, 8}, lengths[] = {8, 0, 8, 8};
    const sds_list list = {
        .in_file = {.n = 4, .offsets = offsets, .lengths = lengths},
        .is_packed = 1,
        .memory_bytes = sizeof out,
    };
    sds_list_fault fault;
    CHECK(sds_read_list(file, &list, out, NULL, NULL, &fault) == SDS_ESHORT);
    CHECK(fault.is_set && fault.rule == SDS_LIST_OUTSIDE_FILE && fault.region == 2);
    CHECK(fault.file_bytes == FILE_BYTES && memcmp(out, before, sizeof out) == 0);
    sds_file_close(file);

    CHECK(sds_file_open(-1, NULL, &file) == SDS_OK);
    CHECK(sds_read_list(file, &list, out, NULL, NULL, NULL) == SDS_EIO && errno == EBADF);
    sds_file_close(file);
}

static void test_writing_equals_byte_by_byte(void)
{
    static uint8_t expected[FILE_BYTES], found[FILE_BYTES];
    FILE *file = tmpfile();
    CHECK(file != NULL);
    is_shaken = 1;
    for (int round = 0; round < 3000; round++) {
        memset(expected, 0xA5, sizeof expected);
        is_shaken = 0;
        CHECK(pwrite(fileno(file), expected, FILE_BYTES, 0) == FILE_BYTES);
        is_shaken = round % 2;
        const sds_list list = random_list();
        const int64_t n_bytes = places_of_list(&list);
        for (int64_t i = 0; i < n_bytes; i++)
            expected[file_places[i]] = memory[memory_places[i]];
        int64_t n_written = 0;
        for (int64_t i = 0; i < FILE_BYTES; i++)
            n_written += expected[i] != 0xA5;
        sds_write_report report;
        CHECK(sds_write_list(fileno(file), &list, memory, &report, NULL) == SDS_OK);
        CHECK(report.bytes_written == n_written);
        CHECK(report.requests <= report.pieces);
        CHECK(pread(fileno(file), found, FILE_BYTES, 0) == FILE_BYTES);
        CHECK(memcmp(expected, found, sizeof found) == 0);
    }
    is_shaken = 0;
    fclose(file);
}

/* Many neighbours, short and long ones: more than one buffer and more than one vector hold. */
static void test_neighbours_are_written_together(void)
{
    enum { n = 100000 };
    static int64_t to[n], from[n];
    static uint8_t bytes[16 * n], found[n];
    static const struct {
        int64_t length;
        int64_t n_requests;
    } cases[] = {{8, 4}, {600, 3}};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_u64(&state);
    for (size_t c = 0; c < 4; c++) {
        const int64_t length = cases[c % 2].length, count = length == 8 ? n : 2500;
        for (int64_t i = 0; i < count; i++) {
            to[i] = 3 + length * i;
            from[i] = (length + 8) * (count - 1 - i) % ((int64_t)sizeof bytes - length);
        }
        const sds_list list = {
            .in_file = {.n = (size_t)count, .offsets = to, .length = length},
            .in_memory = {.n = (size_t)count, .offsets = from, .length = length},
            .memory_bytes = sizeof bytes,
        };
        FILE *file = tmpfile();
        sds_write_report report;
        is_shaken = c >= 2;
        CHECK(file && sds_write_list(fileno(file), &list, bytes, &report, NULL) == SDS_OK);
        is_shaken = 0;
        CHECK(report.pieces == count && report.requests == cases[c % 2].n_requests);
        CHECK(report.bytes_written == count * length);
        for (int64_t i = 0; i < count; i++) {
            CHECK(pread(fileno(file), found, (size_t)length, to[i]) == length);
            CHECK(memcmp(found, bytes + from[i], (size_t)length) == 0);
        }
        fclose(file);
    }
}

static sds_list list_of(size_t n_file, size_t n_memory)
{
    return (sds_list){
        .in_file = {.n = n_file, .offsets = file_offsets, .lengths = file_lengths},
        .in_memory = {.n = n_memory, .offsets = memory_offsets, .lengths = memory_lengths},
        .memory_bytes = MEMORY_BYTES,
    };
}

static void check_refused(const sds_list *list, sds_status status, sds_list_rule rule,
                          int is_in_memory, size_t region)
{
    size_t n = 1;
    sds_piece *pieces = &(sds_piece){0, 0, 0};
    sds_list_fault fault = {0};
    CHECK(sds_list_pieces(list, SDS_LIST_INTO_MEMORY, &n, &pieces, &fault) == status);
    CHECK(n == 0 && pieces == NULL && fault.is_set && fault.rule == rule);
    CHECK(fault.is_in_memory == is_in_memory && fault.region == region);
    CHECK(sds_list_pieces(list, SDS_LIST_INTO_FILE, &n, &pieces, NULL) == status);
    sds_write_report report;
    CHECK(sds_write_list(-1, list, memory, &report, &fault) == status && fault.is_set);
}

static void test_lists_that_cannot_be_right_are_refused(void)
{
    memset(file_offsets, 0, sizeof file_offsets);
    memset(memory_offsets, 0, sizeof memory_offsets);
    for (int i = 0; i < 4; i++)
        file_lengths[i] = memory_lengths[i] = 8;
    sds_list list = list_of(3, 3);
    file_offsets[2] = -1;
    check_refused(&list, SDS_EINVAL, SDS_LIST_NEGATIVE, 0, 2);
    file_offsets[2] = INT64_MAX - 7;
    check_refused(&list, SDS_EOVERFLOW, SDS_LIST_TOO_FAR, 0, 2);
    file_offsets[2] = INT64_MAX - 8;
    memory_lengths[1] = -8;
    check_refused(&list, SDS_EINVAL, SDS_LIST_NEGATIVE, 1, 1);
    memory_lengths[1] = 8;
    memory_offsets[0] = MEMORY_BYTES - 7;
    check_refused(&list, SDS_EINVAL, SDS_LIST_OUTSIDE_MEMORY, 1, 0);
    memory_offsets[0] = 0;
    file_lengths[0] = INT64_MAX - 8;
    check_refused(&list, SDS_EOVERFLOW, SDS_LIST_TOO_FAR, 0, 2); /* the sum */
    file_lengths[0] = 9;
    check_refused(&list, SDS_EINVAL, SDS_LIST_SUMS_DIFFER, 0, 0);
    sds_list_fault fault;
    size_t n;
    sds_piece *pieces;
    CHECK(sds_list_pieces(&list, SDS_LIST_INTO_FILE, &n, &pieces, &fault) == SDS_EINVAL);
    CHECK(fault.file_bytes == 25 && fault.memory_bytes == 24);
    list.is_packed = 1;
    list.memory_bytes = 24;
    check_refused(&list, SDS_EINVAL, SDS_LIST_OUTSIDE_MEMORY, 1, 0);
}

static void test_a_full_disk_is_told(void)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    const int fd = fileno(file);
    for (int i = 0; i < 3; i++) {
        file_offsets[i] = memory_offsets[i] = 1000 * i;
        file_lengths[i] = memory_lengths[i] = 600;
    }
    const sds_list list = list_of(3, 3);
    sds_write_report report;
    CHECK(sds_write_list(-1, &list, memory, &report, NULL) == SDS_EIO && errno == EBADF);
    CHECK(report.bytes_written == 0);

    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit small = {1100, before.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(sds_write_list(fd, &list, memory, &report, NULL) == SDS_EIO && errno == EFBIG);
    CHECK(report.bytes_written == 700);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);

    const int full = open("/dev/full", O_WRONLY);
    CHECK(full >= 0);
    CHECK(sds_write_list(full, &list, memory, &report, NULL) == SDS_EIO && errno == ENOSPC);
    close(full);

    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
    sds_list_fault fault;
    CHECK(sds_write_list(fd, &list, memory, NULL, &fault) == SDS_EINVAL);
    CHECK(fault.is_set && fault.rule == SDS_LIST_APPENDS);
    fclose(file);
}

int main(void)
{
    for (int i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)random_between(&state, 0, 0xA4);
    for (int i = 0; i < MEMORY_BYTES; i++)
        memory[i] = (uint8_t)random_between(&state, 0, 0xA4);
    FILE *file = tmpfile();
    CHECK(file != NULL && pwrite(fileno(file), content, FILE_BYTES, 0) == FILE_BYTES);
    test_pieces_move_what_the_lists_say();
    test_reading_equals_byte_by_byte(fileno(file));
    test_what_the_file_lacks_is_refused_before_anything_is_read(fileno(file));
    fclose(file);
    test_writing_equals_byte_by_byte();
    test_neighbours_are_written_together();
    test_lists_that_cannot_be_right_are_refused();
    test_a_full_disk_is_told();
    return 0;
}
