#include "queue_client.h"

/* The lengths of so many strips are known. */
#define STRIPS 2

void sds__queue_walk_init(sds__queue_walk *walk, const sds_queue_stream *stream, int32_t n_levels,
                          const sds_queue_client *client, int64_t run_ns, int64_t copy_ns)
{
    *walk = (sds__queue_walk){
        .stream = stream,
        .client = client,
        .n_levels = n_levels,
        .run_ns = run_ns,
        .copy_ns = copy_ns,
        .offset = stream->begin_bytes,
        .total = 1,
        .fetched_end = -1,
        .strip_low = stream->begin_bytes / client->page_bytes * client->page_bytes,
    };
    for (int32_t k = 0; k < n_levels; k++)
        walk->total *= stream->count[k];
}

/* Go on by n runs of the innermost level, which has as many left, or to the next row. */
static void advance(sds__queue_walk *walk, int64_t n)
{
    const sds_queue_stream *stream = walk->stream;
    const int32_t last = walk->n_levels - 1;
    walk->done += n;
    walk->index[last] += n;
    walk->offset += n * stream->stride_bytes[last];
    for (int32_t k = last; k > 0 && walk->index[k] == stream->count[k]; k--) {
        walk->offset += stream->stride_bytes[k - 1] - walk->index[k] * stream->stride_bytes[k];
        walk->index[k] = 0;
        walk->index[k - 1]++;
    }
}

static int64_t pages_up(int64_t at, int64_t page)
{
    return sds__divide_up(at, page) * page;
}

/* Go on to the next run. */
static void follow(sds__queue_walk *walk)
{
    const int64_t page = walk->client->page_bytes;
    const int64_t end = walk->offset + walk->stream->run_bytes;
    advance(walk, 1);
    if (walk->offset - end <= walk->client->gap_bytes) {
        walk->near++;
        return;
    }
    walk->strip[1] = walk->strip[0];
    walk->strip[0] = pages_up(end, page) - walk->strip_low;
    walk->strip_low = walk->offset / page * page;
    walk->near = 0;
}

/* Go on by n runs of a row, after each of which others of it follow: what the strips before were
 * is forgotten. */
static void jump(sds__queue_walk *walk, int64_t n)
{
    const int64_t stride = walk->stream->stride_bytes[walk->n_levels - 1];
    advance(walk, n);
    if (stride - walk->stream->run_bytes <= walk->client->gap_bytes) {
        walk->near += n;
    } else {
        walk->strip_low = walk->offset / walk->client->page_bytes * walk->client->page_bytes;
        walk->near = 0;
    }
}

/* Go on to the next run of which something is missing. */
static void pass_over(sds__queue_walk *walk)
{
    const sds_queue_stream *stream = walk->stream;
    const int32_t last = walk->n_levels - 1;
    const int64_t length = stream->run_bytes, stride = stream->stride_bytes[last];
    while (walk->done < walk->total && walk->offset + length <= walk->fetched_end) {
        int64_t n = stream->count[last] - walk->index[last];
        if (n > 1) n = sds__least(n, (walk->fetched_end - walk->offset - length) / stride + 1);
        walk->steps++;
        if (n > STRIPS) jump(walk, n - STRIPS);
        for (int64_t i = sds__least(n, STRIPS); i > 0; i--)
            follow(walk);
    }
}

int sds__queue_next_fetch(sds__queue_walk *walk, int64_t *working_ns)
{
    const sds_queue_client *client = walk->client;
    const int64_t page = client->page_bytes, before = walk->done;
    pass_over(walk);
    *working_ns =
        walk->copying_ns + sds__queue_times_ns(walk->done - before, walk->run_ns + walk->copy_ns);
    walk->copying_ns = walk->copy_ns;
    if (walk->done >= walk->total) return 0;
    walk->low = sds__greatest(walk->offset / page * page, walk->fetched_end);
    walk->high = pages_up(walk->offset + walk->stream->run_bytes, page);
    if (client->window_bytes > 0 && walk->near >= client->after) {
        int64_t ahead = sds__least(pages_up(walk->high, client->window_bytes), client->end_bytes);
        if (walk->strip[0] > 0 && walk->strip[0] == walk->strip[1])
            ahead = sds__least(ahead, walk->strip_low + walk->strip[0]);
        walk->high = sds__greatest(walk->high, ahead);
    }
    walk->fetched_end = walk->high;
    *working_ns += walk->run_ns;
    follow(walk);
    return 1;
}
