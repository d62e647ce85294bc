#include "ring.h"

#if __has_include(<linux/io_uring.h>)

#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One mapping of both queues (Linux 5.4); entries read as they are submitted (5.5); reads without
 * vectors (5.6, which brought this one). */
#define NEEDED_FEATURES                                                                            \
    (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_RW_CUR_POS)

/* 5.19: what is done is taken note of when the thread next enters the kernel anyway. */
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif

static int enter(int fd, uint32_t n_submitted, uint32_t n_awaited)
{
    return (int)syscall(__NR_io_uring_enter, fd, n_submitted, n_awaited,
                        n_awaited > 0 ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

/* A filter of system calls may kill who makes one that it does not know. */
static int is_filtered(void)
{
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0;
}

static int set_up(uint32_t n_entries, struct io_uring_params *parameters)
{
    memset(parameters, 0, sizeof *parameters);
    parameters->flags = IORING_SETUP_COOP_TASKRUN;
    int fd = (int)syscall(__NR_io_uring_setup, n_entries, parameters);
    if (fd < 0 && errno == EINVAL) {
        memset(parameters, 0, sizeof *parameters);
        fd = (int)syscall(__NR_io_uring_setup, n_entries, parameters);
    }
    return fd;
}

static void *map(int fd, size_t n, off_t offset)
{
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    if (at == MAP_FAILED) return NULL;
    (void)madvise(at, n, MADV_DONTFORK);
    return at;
}

static int map_queues(sds__ring *ring, const struct io_uring_params *parameters)
{
    const size_t submitted = parameters->sq_off.array + parameters->sq_entries * sizeof(uint32_t);
    const size_t done =
        parameters->cq_off.cqes + parameters->cq_entries * sizeof(struct io_uring_cqe);
    ring->queues_bytes = submitted > done ? submitted : done;
    ring->entries_bytes = parameters->sq_entries * sizeof(struct io_uring_sqe);
    ring->queues = map(ring->fd, ring->queues_bytes, IORING_OFF_SQ_RING);
    ring->entries = map(ring->fd, ring->entries_bytes, (off_t)IORING_OFF_SQES);
    if (ring->queues == NULL || ring->entries == NULL) return 0;
    ring->n_entries = parameters->sq_entries;
    ring->tail = (uint32_t *)(ring->queues + parameters->sq_off.tail);
    ring->slots = (uint32_t *)(ring->queues + parameters->sq_off.array);
    ring->mask = *(uint32_t *)(ring->queues + parameters->sq_off.ring_mask);
    ring->done_head = (uint32_t *)(ring->queues + parameters->cq_off.head);
    ring->done_tail = (uint32_t *)(ring->queues + parameters->cq_off.tail);
    ring->done_mask = *(uint32_t *)(ring->queues + parameters->cq_off.ring_mask);
    ring->done = (const struct io_uring_cqe *)(ring->queues + parameters->cq_off.cqes);
    return 1;
}

int sds__ring_open(sds__ring *ring, uint32_t n_entries)
{
    struct io_uring_params parameters;
    const int saved_errno = errno;
    memset(ring, 0, sizeof *ring);
    ring->fd = is_filtered() ? -1 : set_up(n_entries, &parameters);
    const int made = ring->fd >= 0 && (parameters.features & NEEDED_FEATURES) == NEEDED_FEATURES &&
                     map_queues(ring, &parameters);
    if (!made) sds__ring_close(ring);
    errno = saved_errno;
    return made;
}

void sds__ring_close(sds__ring *ring)
{
    if (ring->queues != NULL) (void)munmap(ring->queues, ring->queues_bytes);
    if (ring->entries != NULL) (void)munmap(ring->entries, ring->entries_bytes);
    if (ring->fd >= 0) (void)close(ring->fd);
}

void sds__ring_read(sds__ring *ring, int fd, void *out, uint32_t n, int64_t offset, uint64_t tag)
{
    const uint32_t at = *ring->tail; /* only this thread moves it */
    struct io_uring_sqe *entry = &ring->entries[at & ring->mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_READ;
    entry->fd = fd;
    entry->addr = (uint64_t)(uintptr_t)out;
    entry->len = n;
    entry->off = (uint64_t)offset;
    entry->user_data = tag;
    ring->slots[at & ring->mask] = at & ring->mask;
    __atomic_store_n(ring->tail, at + 1, __ATOMIC_RELEASE);
    ring->n_queued++;
}

static uint32_t n_done(const sds__ring *ring)
{
    return __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE) - *ring->done_head;
}

int sds__ring_submit(sds__ring *ring, uint32_t n_awaited)
{
    const uint32_t n_all = ring->n_queued + ring->n_in_flight;
    if (n_awaited > n_all) n_awaited = n_all;
    while (ring->n_queued > 0 || n_done(ring) < n_awaited) {
        const int n = enter(ring->fd, ring->n_queued, n_awaited);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EBUSY) && ring->n_in_flight > 0) {
            /* The kernel is short of memory: what is done gives some back. */
            sds__ring_wait(ring);
            return 1;
        }
        if (n < 0 || (n == 0 && ring->n_queued > 0)) return 0;
        ring->n_queued -= (uint32_t)n;
        ring->n_in_flight += (uint32_t)n;
    }
    return 1;
}

void sds__ring_wait(sds__ring *ring)
{
    const struct timespec moment = {0, 50000};
    while (ring->n_in_flight > 0 && n_done(ring) == 0)
        /* Where the program has closed the descriptor, the queues are still mapped, and filled. */
        if (enter(ring->fd, 0, 1) < 0 && errno != EINTR) (void)nanosleep(&moment, NULL);
}

int sds__ring_take(sds__ring *ring, uint64_t *tag, int32_t *result)
{
    const uint32_t head = *ring->done_head; /* only this thread moves it */
    if (head == __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE)) return 0;
    const struct io_uring_cqe *done = &ring->done[head & ring->done_mask];
    *tag = done->user_data;
    *result = done->res;
    __atomic_store_n(ring->done_head, head + 1, __ATOMIC_RELEASE);
    ring->n_in_flight--;
    return 1;
}

#else /* headers older than Linux 5.1 */

int sds__ring_open(sds__ring *ring, uint32_t n_entries)
{
    (void)ring, (void)n_entries;
    return 0;
}

/* Not called without a ring. */
void sds__ring_close(sds__ring *ring)
{
    (void)ring;
}

void sds__ring_read(sds__ring *ring, int fd, void *out, uint32_t n, int64_t offset, uint64_t tag)
{
    (void)ring, (void)fd, (void)out, (void)n, (void)offset, (void)tag;
}

int sds__ring_submit(sds__ring *ring, uint32_t n_awaited)
{
    (void)ring, (void)n_awaited;
    return 0;
}

void sds__ring_wait(sds__ring *ring)
{
    (void)ring;
}

int sds__ring_take(sds__ring *ring, uint64_t *tag, int32_t *result)
{
    (void)ring, (void)tag, (void)result;
    return 0;
}

#endif
