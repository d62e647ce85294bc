/* Ranges that are read while the cache holds all of them, a part or nothing, and what is announced
 * and made for that. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "page_cache.h"
#include "read_ahead.h"
#include "sds/read_engine.h"

#define PAGE_BYTES 4096
#define FILE_BYTES ((8 << 20) + 1234) /* ends within a page */
static uint8_t content[FILE_BYTES];

/* What the code under test asks of the kernel comes by here. */
static int n_looks, n_made;
static ssize_t n_found_cached; /* by the last call that does not wait; all: it cannot tell */

int mincore(void *begin, size_t n, unsigned char *state)
{
    n_looks++;
    return (int)syscall(SYS_mincore, begin, n, state);
}

int madvise(void *begin, size_t n, int advice)
{
    n_made += advice == 23; /* MADV_POPULATE_WRITE, which older headers do not have */
    return (int)syscall(SYS_madvise, begin, n, advice);
}

ssize_t preadv2(int fd, const struct iovec *to, int n_parts, off_t offset, int flags)
{
    const ssize_t got = syscall(SYS_preadv2, fd, to, n_parts, (long)offset, 0L, flags);
    n_found_cached = got >= 0 ? got : errno == EAGAIN ? 0 : FILE_BYTES;
    return got;
}

static int new_file(test_directory directory)
{
    char path[128];
    const int fd = create_file(directory, path);
    CHECK(unlink(path) == 0);
    CHECK(write(fd, content, FILE_BYTES) == FILE_BYTES && fsync(fd) == 0);
    return fd;
}

static int is_cached(int fd, int64_t offset)
{
    return pages_cached(fd, offset, 1) == 1;
}

static int64_t n_cached(int fd)
{
    return pages_cached(fd, 0, FILE_BYTES);
}

static uint8_t *new_memory(size_t n)
{
    void *made = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    (void)madvise(made, n, MADV_NOHUGEPAGE);
    return made;
}

static int64_t pages_present(void *memory, int64_t n)
{
    static unsigned char state[1024];
    int64_t present = 0;
    CHECK(n <= 1024 * PAGE_BYTES && mincore(memory, (size_t)n, state) == 0);
    for (int64_t i = 0; i < n / PAGE_BYTES; i++)
        present += state[i] & 1;
    return present;
}

/* Lengths on both sides of what is looked at and of what is announced at once, anywhere in the file
 * and in memory; nothing is written around them. What the kernel says is what counts: on a fast
 * device all that is missing may have come before it looks. */
static void test_ranges_in_every_state(int fd, int may_be_cold)
{
    static const int64_t lengths[] = {1, 65535, 65536, 131072, 131073, 300001, 1 << 20};
    int n_missing = 0, n_whole = 0;
    uint64_t state = 1;
    for (int i = 0; i < 300; i++) {
        const int64_t n = lengths[i % 7];
        const int64_t offset = random_between(&state, 0, FILE_BYTES - n);
        const int64_t shift = random_between(&state, 1, 9000);
        uint8_t *memory = new_memory((size_t)(n + 20000));
        if (may_be_cold) make_cold(fd);
        if (i % 3 == 1) make_warm(fd, offset, n);
        if (i % 3 == 2) CHECK(pread(fd, memory, (size_t)(n + 1) / 2, (off_t)offset) == (n + 1) / 2);
        memset(memory, 0xA5, (size_t)shift);
        memset(memory + shift + n, 0xA5, 100);
        int32_t was_missing = i % 2;
        errno = EDOM;
        CHECK(sds__read_range(fd, memory + shift, n, offset, &was_missing) == SDS_OK);
        CHECK(errno == EDOM);
        CHECK(was_missing == (n < 65536 ? i % 2 : n_found_cached < n));
        n_missing += n >= 65536 && i % 3 == 0 && was_missing;
        n_whole += n >= 65536 && i % 3 == 1 && !was_missing;
        CHECK(memcmp(memory + shift, content + offset, (size_t)n) == 0);
        for (int64_t at = 0; at < shift; at++)
            CHECK(memory[at] == 0xA5);
        for (int64_t at = 0; at < 100; at++)
            CHECK(memory[shift + n + at] == 0xA5);
        CHECK(munmap(memory, (size_t)(n + 20000)) == 0);
    }
    CHECK(n_whole > 0 && (n_missing > 0 || !may_be_cold));
}

static void test_the_end_of_the_file_and_errors(int fd, int may_be_cold)
{
    uint8_t *memory = new_memory(1 << 20);
    int32_t was_missing = 1;
    for (int is_cold = 0; is_cold < 2; is_cold++) {
        if (is_cold && may_be_cold) make_cold(fd);
        CHECK(sds__read_range(fd, memory, 200000, FILE_BYTES - 199999, &was_missing) == SDS_ESHORT);
        CHECK(sds__read_range(fd, memory, 200000, FILE_BYTES, &was_missing) == SDS_ESHORT);
        CHECK(sds__read_range(fd, memory, 200000, INT64_C(1) << 43, &was_missing) == SDS_ESHORT);
    }
    /* Memory that may not be written: an error, and no signal. */
    CHECK(mprotect(memory, 1 << 20, PROT_READ) == 0);
    for (int is_cold = 0; is_cold < 2; is_cold++) {
        if (is_cold && may_be_cold) make_cold(fd);
        errno = 0;
        CHECK(sds__read_range(fd, memory, 200000, 100, &was_missing) == SDS_EIO && errno == EFAULT);
    }
    errno = 0;
    CHECK(sds__read_range(-1, memory, 200000, 100, &was_missing) == SDS_EIO && errno == EBADF);
    int ends[2];
    CHECK(pipe(ends) == 0);
    errno = 0;
    CHECK(sds__read_range(ends[0], memory, 200000, 100, &was_missing) == SDS_EIO &&
          errno == ESPIPE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(memory, 1 << 20) == 0);
}

/* All of the range is read, and nothing a little behind it. */
static void test_what_is_announced_is_read(test_directory directory)
{
    const int64_t offset = (2 << 20) + 77, n = (1 << 20) + 5;
    const int fd = new_file(directory); /* of which no earlier read is under way */
    make_cold(fd);
    CHECK(n_cached(fd) == 0);
    sds__announce(fd, offset, n);
    WAIT_UNTIL(pages_cached(fd, offset, n) == n / PAGE_BYTES + 1);
    CHECK(!is_cached(fd, offset + n + PAGE_BYTES) && !is_cached(fd, offset - PAGE_BYTES));
    CHECK(close(fd) == 0);
}

/* What is missing is read, and nothing else: of what is short, or so long that it may be read past
 * the cache, or of what is cached already, nothing. */
static void test_a_range_that_is_to_be_read_is_announced(test_directory directory)
{
    const int64_t offset = (2 << 20) + 77, n = 1 << 20;
    const int fd = new_file(directory);
    make_cold(fd);
    errno = EDOM;
    sds_announce_range(fd, offset, 65535);
    sds_announce_range(fd, offset, 4 << 20);
    sds_announce_range(fd, offset, 0);
    CHECK(n_cached(fd) == 0 && pages_arriving(fd) <= 0);
    sds_announce_range(fd, offset, n);
    WAIT_UNTIL(pages_cached(fd, offset, n) == n / PAGE_BYTES + 1);
    CHECK(n_cached(fd) == n / PAGE_BYTES + 1);
    sds_announce_range(fd, offset + n - 65536, n); /* its beginning is cached */
    CHECK(n_cached(fd) == n / PAGE_BYTES + 1 && pages_arriving(fd) <= n / PAGE_BYTES + 1);
    sds_announce_range(fd, FILE_BYTES, n);
    sds_announce_range(-1, offset, n);
    CHECK(errno == EDOM && close(fd) == 0);
}

static void test_pages_are_made_and_left_as_they_are(void)
{
    const int64_t n = 64 * PAGE_BYTES;
    uint8_t *memory = new_memory((size_t)n);
    memory[3 * PAGE_BYTES + 5] = 7;
    CHECK(pages_present(memory, n) == 1);
    errno = EDOM;
    sds__make_pages(memory + PAGE_BYTES + 1, 10 * PAGE_BYTES);
    CHECK(errno == EDOM);
    const int64_t present = pages_present(memory, n);
    /* 11 that are touched; kernels before 5.14 make none. */
    CHECK(present == 11 || present == 1);
    CHECK(memory[3 * PAGE_BYTES + 5] == 7 && memory[2 * PAGE_BYTES] == 0);
    sds__make_pages(NULL, PAGE_BYTES);
    CHECK(errno == EDOM && munmap(memory, (size_t)n) == 0);
}

/* What is cached goes to new memory as to any other, whatever part of that was used before. */
static void test_new_memory(int fd)
{
    const int64_t n = 1 << 20, offset = 4097;
    int32_t was_missing = 1;
    make_warm(fd, offset, n);
    for (int i = 0; i < 4; i++) {
        uint8_t *memory = new_memory((size_t)(n + 2 * PAGE_BYTES));
        if (i & 1) memset(memory, 0xA5, (size_t)(n / 2));
        if (i & 2) memset(memory + n - PAGE_BYTES, 0xA5, 3 * PAGE_BYTES);
        errno = EDOM;
        CHECK(sds__read_range(fd, memory + 16, n, offset, &was_missing) == SDS_OK);
        CHECK(errno == EDOM && was_missing == 0);
        CHECK(memcmp(memory + 16, content + offset, (size_t)n) == 0);
        CHECK(memory[0] == (i & 1 ? 0xA5 : 0) && memory[n + 16] == (i & 2 ? 0xA5 : 0));
        CHECK(munmap(memory, (size_t)(n + 2 * PAGE_BYTES)) == 0);
    }
}

/* Memory that was found used is not looked at for 15 reads more, even if it is new again by then;
 * pages of new memory are made at once. */
static void test_memory_that_is_new_again(int fd)
{
    const int64_t n = 1 << 20;
    int32_t was_missing = 0;
    make_warm(fd, 0, n);
    uint8_t *memory = new_memory((size_t)n);
    /* An earlier test may have been given the same addresses. */
    for (int i = 0; i < 16; i++)
        CHECK(sds__read_range(fd, memory, n, 0, &was_missing) == SDS_OK);
    n_looks = 0;
    for (int i = 0; i < 160; i++)
        CHECK(sds__read_range(fd, memory, n, 0, &was_missing) == SDS_OK);
    CHECK(n_looks == 10);

    n_looks = n_made = 0;
    for (int i = 0; i < 40; i++) {
        void *again = mmap(memory, (size_t)n, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(again == memory);
        CHECK(sds__read_range(fd, memory, n, 0, &was_missing) == SDS_OK && was_missing == 0);
        CHECK(memcmp(memory, content, (size_t)n) == 0);
    }
    CHECK(n_looks >= 40 - 15 && n_made == n_looks);
    CHECK(munmap(memory, (size_t)n) == 0);
}

int main(void)
{
    const test_directory directory = find_directory();
    uint64_t state = 7;
    for (int64_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)random_u64(&state);
    const int fd = new_file(directory);
    test_ranges_in_every_state(fd, directory.gives_pages_back);
    test_the_end_of_the_file_and_errors(fd, directory.gives_pages_back);
    if (directory.gives_pages_back) {
        test_what_is_announced_is_read(directory);
        test_a_range_that_is_to_be_read_is_announced(directory);
    }
    test_pages_are_made_and_left_as_they_are();
    test_new_memory(fd);
    test_memory_that_is_new_again(fd);
    CHECK(close(fd) == 0);
    return status_of(directory);
}
