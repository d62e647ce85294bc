/* Reads in flight through io_uring. Internal.
 *
 * A ring is made for one read of many requests by the thread that reads, and closed behind it:
 * that costs 20 us, where a single request of a cold file takes 40 to 80. So nothing is shared
 * between threads or with a child after fork, and there is no descriptor that a program could close
 * between two reads, by mistake, and have its number given to a file. */
#ifndef SDS_RING_H
#define SDS_RING_H

#include <stddef.h>
#include <stdint.h>

struct io_uring_sqe;
struct io_uring_cqe;

typedef struct sds__ring {
    int fd;
    uint32_t n_entries;   /* reads that may be in flight */
    uint32_t n_queued;    /* not yet told to the kernel */
    uint32_t n_in_flight; /* told and not yet taken back */
    uint8_t *queues;
    size_t queues_bytes;
    struct io_uring_sqe *entries;
    size_t entries_bytes;
    uint32_t *tail; /* of what is submitted */
    uint32_t *slots;
    uint32_t mask;
    uint32_t *done_head;
    uint32_t *done_tail;
    uint32_t done_mask;
    const struct io_uring_cqe *done;
} sds__ring;

/* False where the kernel, its settings or a limit refuse; errno is kept. */
int sds__ring_open(sds__ring *ring, uint32_t n_entries);

/* Nothing may be in flight. */
void sds__ring_close(sds__ring *ring);

/* Queue a read; n_queued + n_in_flight must be less than n_entries. */
void sds__ring_read(sds__ring *ring, int fd, void *out, uint32_t n, int64_t offset, uint64_t tag);

/* Tell the kernel what is queued, and wait until `n_awaited` reads are done, or all. False where
 * the kernel takes no more (errno is set): some are then queued still. */
int sds__ring_submit(sds__ring *ring, uint32_t n_awaited);

/* Wait until at least one read is done, whatever becomes of the ring's descriptor. */
void sds__ring_wait(sds__ring *ring);

/* Take one read back that is done: 1, its tag, and bytes or a negative error number; 0: none. */
int sds__ring_take(sds__ring *ring, uint64_t *tag, int32_t *result);

#endif
