#include "sds/gather.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "file_read.h"

#define MAX_DIGIT_BITS 10
/* Below this, moving elements one by one is the fastest way to sort. */
#define FEW_SEGMENTS 32

static void sort_few(size_t n, sds_segment segments[])
{
    for (size_t i = 1; i < n; i++) {
        const sds_segment moving = segments[i];
        size_t at = i;
        for (; at > 0 && segments[at - 1].offset > moving.offset; at--)
            segments[at] = segments[at - 1];
        segments[at] = moving;
    }
}

/* One pass of a radix sort: order by some bits of the offset, keeping the order of equals. */
static void sort_by_digit(size_t n, const sds_segment from[], sds_segment to[], int64_t lowest,
                          int shift, int bits)
{
    uint32_t next[1 << MAX_DIGIT_BITS]; /* positions have 32 bits, too */
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    memset(next, 0, sizeof *next << bits);
    for (size_t i = 0; i < n; i++)
        next[((uint64_t)(from[i].offset - lowest) >> shift) & mask]++;
    uint32_t before = 0;
    for (uint64_t digit = 0; digit <= mask; digit++) {
        const uint32_t count = next[digit];
        next[digit] = before;
        before += count;
    }
    for (size_t i = 0; i < n; i++)
        to[next[((uint64_t)(from[i].offset - lowest) >> shift) & mask]++] = from[i];
}

void sds_segments_sort(size_t n, sds_segment segments[], sds_segment scratch[])
{
    if (n == 0) return;
    int64_t lowest = segments[0].offset, highest = lowest;
    int is_sorted = 1;
    for (size_t i = 1; i < n; i++) {
        is_sorted &= segments[i - 1].offset <= segments[i].offset;
        if (segments[i].offset < lowest) lowest = segments[i].offset;
        if (segments[i].offset > highest) highest = segments[i].offset;
    }
    if (is_sorted) return;
    if (n <= FEW_SEGMENTS) {
        sort_few(n, segments);
        return;
    }
    const int digit_bits = n < 1024 ? 8 : MAX_DIGIT_BITS;
    const uint64_t range = (uint64_t)highest - (uint64_t)lowest;
    sds_segment *from = segments, *to = scratch;
    for (int shift = 0; shift < 64 && range >> shift != 0; shift += digit_bits) {
        const int bits = 64 - shift < digit_bits ? 64 - shift : digit_bits;
        sort_by_digit(n, from, to, lowest, shift, bits);
        sds_segment *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != segments) memcpy(segments, from, n * sizeof *segments);
}

typedef struct {
    int fd;
    int64_t data_offset_bytes;
    int64_t element_bytes;
    int64_t max_gap; /* elements, as everything below */
    int64_t max_window;
    size_t n;
    const sds_segment *segments;
    uint8_t *buffer;
    uint8_t *out;
} gather;

/* Segments first to last - 1, which one request reads. */
typedef struct {
    size_t first;
    size_t last;
    int64_t begin;
    int64_t end;
} window;

static window window_from(const gather *self, size_t first)
{
    const sds_segment *segment = &self->segments[first];
    window made = {first, first + 1, segment->offset, segment->offset + segment->length};
    for (; made.last < self->n; made.last++) {
        segment = &self->segments[made.last];
        int64_t end = segment->offset + segment->length;
        if (end < made.end) end = made.end;
        if (segment->offset - made.end > self->max_gap || end - made.begin > self->max_window)
            break;
        made.end = end;
    }
    return made;
}

static int64_t file_offset(const gather *self, int64_t element)
{
    return self->data_offset_bytes + element * self->element_bytes;
}

/* Copies of a size that the compiler knows. */
#define COPY_SINGLES(bytes)                                                                        \
    for (size_t i = of->first; i < of->last; i++) {                                                \
        const sds_segment *segment = &self->segments[i];                                           \
        uint8_t *to = self->out + (size_t)segment->position * (bytes);                             \
        const uint8_t *from = self->buffer + (segment->offset - of->begin) * (bytes);              \
        if (segment->length == 1)                                                                  \
            memcpy(to, from, bytes);                                                               \
        else                                                                                       \
            memcpy(to, from, (size_t)segment->length * (bytes));                                   \
    }

static void pick_apart(const gather *self, const window *of)
{
    const size_t element_bytes = (size_t)self->element_bytes;
    switch (element_bytes) {
    case 1:
        COPY_SINGLES(1)
        break;
    case 2:
        COPY_SINGLES(2)
        break;
    case 4:
        COPY_SINGLES(4)
        break;
    case 8:
        COPY_SINGLES(8)
        break;
    default:
        COPY_SINGLES(element_bytes)
    }
}

static sds_status read_window(gather *self, const window *of)
{
    const int64_t n_bytes = (of->end - of->begin) * self->element_bytes;
    const int64_t offset = file_offset(self, of->begin);
    if (of->last - of->first == 1)
        return sds__read_all(self->fd,
                             self->out + self->segments[of->first].position * self->element_bytes,
                             n_bytes, offset);
    if (self->buffer == NULL) {
        self->buffer = malloc(SDS__SIEVE_BUFFER_BYTES);
        if (self->buffer == NULL) return SDS_ENOMEM;
    }
    const sds_status status = sds__read_all(self->fd, self->buffer, n_bytes, offset);
    if (status == SDS_OK) pick_apart(self, of);
    return status;
}

/* Have the kernel begin to read the next windows; their number. */
static int announce(const gather *self, size_t first)
{
    int n = 0;
    int64_t n_bytes = 0;
    while (n < SDS__MAX_ANNOUNCED && first < self->n) {
        const window next = window_from(self, first);
        n_bytes += (next.end - next.begin) * self->element_bytes;
        if (n_bytes > SDS__MAX_ANNOUNCED_BYTES) break;
        (void)posix_fadvise(self->fd, (off_t)file_offset(self, next.begin),
                            (off_t)((next.end - next.begin) * self->element_bytes),
                            POSIX_FADV_WILLNEED);
        first = next.last;
        n++;
    }
    return n;
}

static sds_status read_windows(gather *self)
{
    int n_announced = 0; /* and not yet read */
    for (size_t first = 0; first < self->n;) {
        const window of = window_from(self, first);
        const int64_t begin_ns = sds__monotonic_ns();
        const sds_status status = read_window(self, &of);
        if (status != SDS_OK) return status;
        first = of.last;
        if (n_announced > 0) n_announced--;
        if (n_announced <= SDS__MAX_ANNOUNCED / 2 &&
            sds__is_slow(begin_ns, (of.end - of.begin) * self->element_bytes))
            n_announced = announce(self, first);
    }
    return SDS_OK;
}

static sds_status check_segments(const gather *self)
{
    int64_t end, bytes;
    for (size_t i = 0; i < self->n; i++) {
        const sds_segment *segment = &self->segments[i];
        if (segment->offset < (i == 0 ? 0 : segment[-1].offset) || segment->length == 0)
            return SDS_EINVAL;
        if (__builtin_add_overflow(segment->offset, segment->length, &end) ||
            __builtin_mul_overflow(end, self->element_bytes, &bytes) ||
            __builtin_add_overflow(bytes, self->data_offset_bytes, &bytes))
            return SDS_EOVERFLOW;
    }
    return SDS_OK;
}

sds_status sds_read_segments(int fd, int64_t data_offset_bytes, int64_t element_bytes, size_t n,
                             const sds_segment segments[], void *out)
{
    if (data_offset_bytes < 0 || element_bytes <= 0) return SDS_EINVAL;
    gather self = {
        .fd = fd,
        .data_offset_bytes = data_offset_bytes,
        .element_bytes = element_bytes,
        .max_gap = SDS__MAX_GAP_BYTES / element_bytes,
        .max_window = SDS__SIEVE_BUFFER_BYTES / element_bytes,
        .n = n,
        .segments = segments,
        .out = out,
    };
    sds_status status = check_segments(&self);
    if (status == SDS_OK) status = read_windows(&self);
    const int saved_errno = errno;
    free(self.buffer);
    errno = saved_errno;
    return status;
}
