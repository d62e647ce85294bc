#include "sds/queues.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic.h"
#include "event_queue.h"

#define NS_PER_S 1e9
#define MAX_NS (INT64_C(1) << 60)
#define MAX_SERVERS (INT64_C(1) << 22)
#define PAGES_PER_CELL 64
#define MAX_PAGES (INT64_C(1) << 46)
#define MAX_CLIENT (INT64_C(1) << 40)
/* Of cells: 1 GiB. */
#define MAX_CELLS ((size_t)1 << 26)
/* Of a stream in the mean, or nothing would be known of how it goes on. */
#define LEAST_FETCHES 4
#define NONE INT32_C(-1)

enum { ASKS, IS_READY, DISK_ENDS };

/* Pages of a server's object that have been read. */
typedef struct cell {
    int64_t key; /* server and place; -1: free */
    uint64_t pages;
} cell;

typedef struct cells {
    size_t n;
    size_t room; /* a power of two */
    cell *cell;
} cells;

/* What one fetch asks of one server. */
typedef struct piece {
    int32_t stream;
    int32_t server;
    int64_t low; /* of the server's object */
    int64_t high;
    int64_t read_ns; /* when all of it is in memory, if that is not yet */
    int32_t next;    /* free ones, or those that wait for the same disk; -1: the last */
} piece;

typedef struct walker {
    int64_t index[SDS_MAX_RANK];
    int64_t offset; /* of the next run */
    int64_t done;   /* runs */
    int64_t total;
    int64_t fetched_end; /* the client has what it needs up to there */
    int64_t near;        /* runs in a row */
    int64_t strip_low;   /* of the near runs */
    int64_t strip[2];    /* lengths of the last two */
    int64_t low, high;   /* of the fetch under way */
    int64_t answered_ns; /* of its pieces so far */
    int64_t working_ns;
    int64_t copying_ns; /* of the run fetched last, when it has come */
    int64_t half_done;  /* runs at half of the fetches */
    int32_t n_waiting;
} walker;

typedef struct server {
    int32_t waiting;    /* pieces, for the disk */
    int32_t is_reading; /* these pages */
    int64_t first;
    int64_t end;
    int64_t swept; /* where the disk last began to read */
    int64_t link_free_ns;
    int64_t disk_ns;
    int64_t link_ns;
    int64_t head; /* -1: nobody knows */
} server;

typedef struct pieces {
    size_t n;
    size_t room;
    int32_t *piece;
} pieces;

typedef struct network {
    size_t n_streams;
    const sds_queue_stream *stream;
    int32_t n_levels;
    sds_striping striping;
    sds_queue_client client;
    sds_queue_rates rates;
    walker *walker;
    server *server;
    cells cells;
    piece *piece;
    size_t n_pieces;
    int32_t free_piece;
    sds__event_queue queue;
    pieces arrived, ready; /* of this instant */
    int32_t *ended;        /* disks of this instant */
    size_t n_ended;
    int64_t fetches;
    int64_t steps; /* rows looked at */
    double fetched_bytes, read_bytes, reads, seeks;
} network;

static int64_t ns_of(double seconds)
{
    const double ns = seconds * NS_PER_S;
    return ns >= (double)MAX_NS ? MAX_NS : (int64_t)(ns + 0.5);
}

/* ---- what clients fetch ---- */

/* Go on by n runs of the innermost level, which has as many left, or to the next row. */
static void advance(network *net, size_t s, int64_t n)
{
    const sds_queue_stream *stream = &net->stream[s];
    walker *w = &net->walker[s];
    const int32_t last = net->n_levels - 1;
    w->done += n;
    w->index[last] += n;
    w->offset += n * stream->stride_bytes[last];
    for (int32_t k = last; k > 0 && w->index[k] == stream->count[k]; k--) {
        w->offset += stream->stride_bytes[k - 1] - w->index[k] * stream->stride_bytes[k];
        w->index[k] = 0;
        w->index[k - 1]++;
    }
}

static int64_t pages_up(int64_t at, int64_t page)
{
    return sds__divide_up(at, page) * page;
}

/* Go on to the next run. */
static void follow(network *net, size_t s)
{
    walker *w = &net->walker[s];
    const int64_t page = net->client.page_bytes;
    const int64_t end = w->offset + net->stream[s].run_bytes;
    advance(net, s, 1);
    if (w->offset - end <= net->client.gap_bytes) {
        w->near++;
        return;
    }
    w->strip[1] = w->strip[0];
    w->strip[0] = pages_up(end, page) - w->strip_low;
    w->strip_low = w->offset / page * page;
    w->near = 0;
}

/* Go on to the next run of which something is missing. */
static void pass_over(network *net, size_t s)
{
    const sds_queue_stream *stream = &net->stream[s];
    walker *w = &net->walker[s];
    const int32_t last = net->n_levels - 1;
    const int64_t page = net->client.page_bytes;
    const int64_t length = stream->run_bytes, stride = stream->stride_bytes[last];
    const int is_near = stride - length <= net->client.gap_bytes;
    while (w->done < w->total && w->offset + length <= w->fetched_end) {
        const int64_t left = stream->count[last] - 1 - w->index[last];
        int64_t more = left > 0 ? (w->fetched_end - w->offset - length) / stride : 0;
        more = sds__least(more, left);
        net->steps++;
        if (more > 0) {
            advance(net, s, more);
            if (is_near) {
                w->near += more;
            } else {
                w->strip[1] = more > 1 ? pages_up(length, page) : w->strip[0];
                w->strip[0] = pages_up(length, page);
                w->strip_low = w->offset / page * page;
                w->near = 0;
            }
        }
        follow(net, s);
    }
}

/* The next fetch, and how long the process works before it; 0: it has all. */
static int next_fetch(network *net, size_t s, int64_t *working_ns)
{
    const sds_queue_client *client = &net->client;
    walker *w = &net->walker[s];
    const int64_t page = client->page_bytes, before = w->done;
    const double copying_s = net->rates.run_byte_s * (double)net->stream[s].run_bytes;
    pass_over(net, s);
    const double passed = (double)(w->done - before);
    *working_ns = w->copying_ns + ns_of(passed * (net->rates.run_s + copying_s));
    w->copying_ns = ns_of(copying_s);
    if (w->done >= w->total) return 0;
    w->low = sds__greatest(w->offset / page * page, w->fetched_end);
    w->high = pages_up(w->offset + net->stream[s].run_bytes, page);
    if (client->window_bytes > 0 && w->near >= client->after) {
        int64_t ahead = sds__least(pages_up(w->high, client->window_bytes), client->end_bytes);
        if (w->strip[0] > 0 && w->strip[0] == w->strip[1])
            ahead = sds__least(ahead, w->strip_low + w->strip[0]);
        w->high = sds__greatest(w->high, ahead);
    }
    w->fetched_end = w->high;
    *working_ns += ns_of(net->rates.run_s);
    follow(net, s);
    return 1;
}

/* ---- pages that servers have read ---- */

static size_t slot_of(const cells *all, int64_t key)
{
    uint64_t hash = (uint64_t)key * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(hash >> 20) & (all->room - 1);
    while (all->cell[slot].key != -1 && all->cell[slot].key != key)
        slot = (slot + 1) & (all->room - 1);
    return slot;
}

static sds_status make_room(cells *all)
{
    if (all->room > 0 && 2 * all->n < all->room) return SDS_OK;
    cells more = {.n = all->n, .room = all->room == 0 ? 1024 : 2 * all->room};
    if (more.room > MAX_CELLS) return SDS_ELIMIT;
    more.cell = malloc(more.room * sizeof *more.cell);
    if (more.cell == NULL) return SDS_ENOMEM;
    for (size_t i = 0; i < more.room; i++)
        more.cell[i].key = -1;
    for (size_t i = 0; i < all->room; i++)
        if (all->cell[i].key != -1) more.cell[slot_of(&more, all->cell[i].key)] = all->cell[i];
    free(all->cell);
    *all = more;
    return SDS_OK;
}

static uint64_t bits(int64_t from, int64_t to)
{
    return (~UINT64_C(0) >> (PAGES_PER_CELL - (to - from))) << from;
}

static int64_t key_of(int64_t at, int64_t c)
{
    return (at << 40) | c;
}

/* First and end of the pages that have not been read; 0: there are none. */
static int missing(const network *net, const piece *p, int64_t *first, int64_t *end)
{
    const int64_t page = net->client.page_bytes;
    const int64_t low = p->low / page, high = sds__divide_up(p->high, page);
    int found = 0;
    for (int64_t c = low / PAGES_PER_CELL; c * PAGES_PER_CELL < high; c++) {
        const int64_t base = c * PAGES_PER_CELL;
        const int64_t from = sds__greatest(low, base);
        const int64_t to = sds__least(high, base + PAGES_PER_CELL);
        uint64_t left = bits(from - base, to - base);
        if (net->cells.room > 0) {
            const cell *known = &net->cells.cell[slot_of(&net->cells, key_of(p->server, c))];
            if (known->key != -1) left &= ~known->pages;
        }
        if (left == 0) continue;
        if (!found) *first = base + __builtin_ctzll(left);
        *end = base + PAGES_PER_CELL - __builtin_clzll(left);
        found = 1;
    }
    return found;
}

static sds_status mark(network *net, int64_t at, int64_t first, int64_t end)
{
    for (int64_t c = first / PAGES_PER_CELL; c * PAGES_PER_CELL < end; c++) {
        const int64_t base = c * PAGES_PER_CELL;
        const int64_t from = sds__greatest(first, base);
        const int64_t to = sds__least(end, base + PAGES_PER_CELL);
        const sds_status status = make_room(&net->cells);
        if (status != SDS_OK) return status;
        cell *known = &net->cells.cell[slot_of(&net->cells, key_of(at, c))];
        if (known->key == -1) {
            *known = (cell){.key = key_of(at, c)};
            net->cells.n++;
        }
        known->pages |= bits(from - base, to - base);
    }
    return SDS_OK;
}

/* ---- servers ---- */

static int32_t take_piece(network *net)
{
    if (net->free_piece == NONE) {
        const size_t old = net->n_pieces, room = old == 0 ? 256 : 2 * old;
        piece *more = realloc(net->piece, room * sizeof *more);
        if (more == NULL) return NONE;
        net->piece = more;
        net->n_pieces = room;
        for (size_t i = old; i < room; i++) {
            more[i].next = net->free_piece;
            net->free_piece = (int32_t)i;
        }
    }
    const int32_t taken = net->free_piece;
    net->free_piece = net->piece[taken].next;
    return taken;
}

static sds_status gather(pieces *some, int32_t of)
{
    if (some->n == some->room) {
        const size_t room = some->room == 0 ? 256 : 2 * some->room;
        int32_t *more = realloc(some->piece, room * sizeof *more);
        if (more == NULL) return SDS_ENOMEM;
        some->piece = more;
        some->room = room;
    }
    some->piece[some->n++] = of;
    return SDS_OK;
}

/* Where a range of the file lies in the object of one of the servers that it touches. */
static void object_range(const network *net, const walker *w, int64_t at, int64_t *low,
                         int64_t *high)
{
    const int64_t size = net->striping.stripe_bytes, n = net->striping.stripe_count;
    const int64_t first = w->low / size, last = (w->high - 1) / size;
    const int64_t mine = first + ((at - first) % n + n) % n;
    const int64_t end = last - ((last - at) % n + n) % n;
    *low = mine / n * size + (mine == first ? w->low % size : 0);
    *high = end / n * size + (end == last ? (w->high - 1) % size + 1 : size);
}

/* The pieces of a fetch reach their servers. */
static sds_status ask(network *net, int32_t s)
{
    walker *w = &net->walker[s];
    const int64_t size = net->striping.stripe_bytes, n = net->striping.stripe_count;
    const int64_t first = w->low / size, last = (w->high - 1) / size;
    const int64_t servers = sds__least(n, last - first + 1);
    for (int64_t i = 0; i < servers; i++) {
        const int32_t of = take_piece(net);
        if (of == NONE) return SDS_ENOMEM;
        piece *p = &net->piece[of];
        *p = (piece){.stream = s, .server = (int32_t)((first + i) % n), .next = NONE};
        object_range(net, w, p->server, &p->low, &p->high);
        w->n_waiting++;
        const sds_status status = gather(&net->arrived, of);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

/* What a disk takes before it reads from here; what is quicker to read through is. */
static double position_s(network *net, const server *on, int64_t low)
{
    if (on->head == low) return 0.0;
    if (on->head >= 0 && low > on->head) {
        const double through_s = (double)(low - on->head) * net->rates.read_byte_s;
        if (through_s <= net->rates.seek_s) return through_s;
    }
    net->seeks++;
    return on->head < 0 ? net->rates.first_s : net->rates.seek_s;
}

/* A disk reads pages [first, end), all that is missing of a piece. */
static sds_status read_piece(network *net, int32_t of, int64_t first, int64_t end, int64_t now_ns)
{
    piece *p = &net->piece[of];
    server *on = &net->server[p->server];
    const int64_t page = net->client.page_bytes;
    const double n_bytes = (double)((end - first) * page);
    /* Long ranges are sent while they are read. */
    const double window = fmin(n_bytes, (double)net->striping.stripe_bytes);
    const int64_t positioning_ns = ns_of(position_s(net, on, first * page));
    const int64_t reading_ns = ns_of(n_bytes * net->rates.read_byte_s);
    const int64_t sent_ns = now_ns + positioning_ns + ns_of(window * net->rates.read_byte_s);
    on->is_reading = 1;
    on->first = first;
    on->end = end;
    on->head = end * page;
    on->disk_ns += positioning_ns + reading_ns;
    net->reads++;
    net->read_bytes += n_bytes;
    p->read_ns = now_ns + positioning_ns + reading_ns;
    if (p->read_ns >= MAX_NS) return SDS_ELIMIT;
    const sds_status status = sds__event_push(&net->queue, (sds__event){sent_ns, IS_READY, of});
    if (status != SDS_OK) return status;
    return sds__event_push(&net->queue, (sds__event){p->read_ns, DISK_ENDS, p->server});
}

static sds_status end_reading(network *net, int32_t at)
{
    server *on = &net->server[at];
    on->is_reading = 0;
    net->ended[net->n_ended++] = at;
    return mark(net, at, on->first, on->end);
}

/* Whether the disk comes to a before b: upwards from where it last began, then from the lowest. */
static int is_next(const server *on, const piece *a, const piece *b)
{
    const int a_ahead = a->low >= on->swept, b_ahead = b->low >= on->swept;
    if (a_ahead != b_ahead) return a_ahead;
    return a->low != b->low ? a->low < b->low : a->high < b->high;
}

static int32_t take_waiting(network *net, server *on)
{
    int32_t *best = &on->waiting;
    for (int32_t *at = best; *at != NONE; at = &net->piece[*at].next)
        if (is_next(on, &net->piece[*at], &net->piece[*best])) best = at;
    const int32_t taken = *best;
    *best = net->piece[taken].next;
    on->swept = net->piece[taken].low;
    return taken;
}

/* An idle disk begins with what comes next. */
static sds_status start_disk(network *net, int32_t at, int64_t now_ns)
{
    server *on = &net->server[at];
    sds_status status = SDS_OK;
    while (!on->is_reading && on->waiting != NONE && status == SDS_OK) {
        const int32_t of = take_waiting(net, on);
        int64_t first, end;
        status = missing(net, &net->piece[of], &first, &end)
                     ? read_piece(net, of, first, end, now_ns)
                     : gather(&net->ready, of);
    }
    return status;
}

/* A fetch has come whole: the process works, and fetches again. */
static sds_status go_on(network *net, int32_t s, int64_t now_ns)
{
    walker *w = &net->walker[s];
    int64_t working_ns;
    if (!next_fetch(net, (size_t)s, &working_ns)) {
        w->working_ns += working_ns;
        w->answered_ns = now_ns + working_ns;
        return SDS_OK;
    }
    w->working_ns += working_ns;
    w->answered_ns = 0;
    net->fetches++;
    net->fetched_bytes += (double)(w->high - w->low);
    const int64_t at = now_ns + working_ns + ns_of(net->rates.trip_s / 2);
    if (at >= MAX_NS) return SDS_ELIMIT;
    return sds__event_push(&net->queue, (sds__event){at, ASKS, s});
}

static int compare_places(const piece *a, const piece *b)
{
    if (a->server != b->server) return a->server < b->server ? -1 : 1;
    if (a->low != b->low) return a->low < b->low ? -1 : 1;
    return a->high < b->high ? -1 : a->high > b->high;
}

static int compare_ready(const void *a, const void *b, void *context)
{
    const piece *all = context;
    return compare_places(&all[*(const int32_t *)a], &all[*(const int32_t *)b]);
}

/* Pieces that have arrived at this instant wait for disks, unless they are in memory. */
static sds_status read_all(network *net, int64_t now_ns)
{
    sds_status status = SDS_OK;
    for (size_t i = 0; i < net->arrived.n && status == SDS_OK; i++) {
        const int32_t of = net->arrived.piece[i];
        piece *p = &net->piece[of];
        server *on = &net->server[p->server];
        int64_t first, end;
        if (missing(net, p, &first, &end)) {
            p->next = on->waiting;
            on->waiting = of;
        } else {
            status = gather(&net->ready, of);
        }
    }
    for (size_t i = 0; i < net->arrived.n && status == SDS_OK; i++)
        status = start_disk(net, net->piece[net->arrived.piece[i]].server, now_ns);
    net->arrived.n = 0;
    return status;
}

/* Pieces that are ready at this instant share the link of their server; the same piece for
 * processes of one node is sent once. */
static sds_status send_all(network *net, int64_t now_ns)
{
    int32_t *ready = net->ready.piece;
    const size_t n = net->ready.n;
    if (n > 1) qsort_r(ready, n, sizeof *ready, compare_ready, net->piece);
    net->ready.n = 0;
    for (size_t i = 0, end; i < n; i = end) {
        const int32_t at = net->piece[ready[i]].server;
        server *on = &net->server[at];
        double sending_s = 0.0;
        for (end = i; end < n && net->piece[ready[end]].server == at;) {
            const piece *same = &net->piece[ready[end]];
            uint64_t nodes = 0;
            for (; end < n && compare_places(same, &net->piece[ready[end]]) == 0; end++)
                nodes |= net->stream[net->piece[ready[end]].stream].nodes;
            const double n_bytes = (double)(same->high - same->low);
            const double replies = ceil(n_bytes / (double)net->striping.stripe_bytes);
            sending_s += __builtin_popcountll(nodes) *
                         (replies * net->rates.reply_s + n_bytes * net->rates.sent_byte_s);
        }
        const int64_t sending_ns = ns_of(sending_s);
        on->link_ns += sending_ns;
        on->link_free_ns = sds__greatest(on->link_free_ns, now_ns) + sending_ns;
        for (size_t k = i; k < end; k++) {
            piece *p = &net->piece[ready[k]];
            walker *w = &net->walker[p->stream];
            const int64_t done_ns = sds__greatest(on->link_free_ns, p->read_ns);
            w->answered_ns = sds__greatest(w->answered_ns, done_ns + ns_of(net->rates.trip_s / 2));
            p->next = net->free_piece;
            net->free_piece = ready[k];
            if (--w->n_waiting > 0) continue;
            const sds_status status = go_on(net, p->stream, w->answered_ns);
            if (status != SDS_OK) return status;
        }
    }
    return SDS_OK;
}

/* Everything of one instant: first what arrives and ends, then what servers do next. */
static sds_status happen(network *net)
{
    const int64_t now_ns = net->queue.event[0].time;
    sds_status status = SDS_OK;
    while (net->queue.n > 0 && net->queue.event[0].time == now_ns && status == SDS_OK) {
        const sds__event event = sds__event_pop(&net->queue);
        if (event.kind == ASKS) {
            status = ask(net, event.of);
        } else if (event.kind == IS_READY) {
            status = gather(&net->ready, event.of);
        } else {
            status = end_reading(net, event.of);
        }
    }
    if (status == SDS_OK) status = read_all(net, now_ns);
    while (net->n_ended > 0 && status == SDS_OK)
        status = start_disk(net, net->ended[--net->n_ended], now_ns);
    return status == SDS_OK ? send_all(net, now_ns) : status;
}

/* What is known after everything until now_ns, and from half_ns on what is left goes on as. */
static void summarise(const network *net, int64_t half_ns, int64_t now_ns, sds_queued *out)
{
    double most = 0.0, total = 0.0, done = 0.0, half = 0.0;
    int64_t last_ns = now_ns;
    *out = (sds_queued){.least_share = 1.0};
    for (size_t s = 0; s < net->n_streams; s++) {
        const walker *w = &net->walker[s];
        const double lately = fmax(1.0, (double)(w->done - w->half_done));
        last_ns = sds__greatest(last_ns, w->answered_ns);
        total += (double)w->total;
        done += (double)w->done;
        half += (double)w->half_done;
        most = fmax(most, (double)(w->total - w->done) / lately);
        out->least_share = fmin(out->least_share, (double)w->done / (double)w->total);
        out->working_s = fmax(out->working_s, (double)w->working_ns / NS_PER_S);
    }
    /* Once all runs are fetched, the last answers tell the end. */
    const int64_t until_ns = done < total ? now_ns : last_ns;
    const double lately_s = (double)(now_ns - half_ns) / NS_PER_S;
    out->followed_s = (double)until_ns / NS_PER_S;
    out->followed_share = done / total;
    out->slowest_s = out->followed_s + most * lately_s;
    out->even_s = out->followed_s + (total - done) / fmax(1.0, done - half) * lately_s;
    for (int64_t i = 0; i < net->striping.stripe_count; i++) {
        out->disk_s = fmax(out->disk_s, (double)net->server[i].disk_ns / NS_PER_S);
        out->link_s = fmax(out->link_s, (double)net->server[i].link_ns / NS_PER_S);
    }
    out->fetches = (double)net->fetches;
    out->fetched_bytes = net->fetched_bytes;
    out->reads = net->reads;
    out->read_bytes = net->read_bytes;
    out->seeks = net->seeks;
}

static sds_status run(network *net, int64_t max_fetches, sds_queued *out)
{
    const int64_t most = sds__greatest(max_fetches, LEAST_FETCHES * (int64_t)net->n_streams);
    sds_status status = SDS_OK;
    int64_t now_ns = 0, half_ns = 0;
    int is_half = 0;
    for (size_t s = 0; s < net->n_streams && status == SDS_OK; s++) {
        walker *w = &net->walker[s];
        *w = (walker){.offset = net->stream[s].begin_bytes, .total = 1, .fetched_end = -1};
        w->strip_low = w->offset / net->client.page_bytes * net->client.page_bytes;
        for (int32_t k = 0; k < net->n_levels; k++)
            w->total *= net->stream[s].count[k];
        status = go_on(net, (int32_t)s, 0);
    }
    while (net->queue.n > 0 && status == SDS_OK && net->fetches + net->steps < most) {
        now_ns = net->queue.event[0].time;
        if (!is_half && net->fetches + net->steps >= most / 2) {
            is_half = 1;
            half_ns = now_ns;
            for (size_t s = 0; s < net->n_streams; s++)
                net->walker[s].half_done = net->walker[s].done;
        }
        status = happen(net);
    }
    if (status == SDS_OK) summarise(net, half_ns, now_ns, out);
    return status;
}

static int is_valid(size_t n_streams, const sds_queue_stream streams[], int32_t n_levels,
                    const sds_striping *striping, const sds_queue_client *client,
                    const sds_queue_rates *rates, int64_t max_fetches)
{
    if (n_streams < 1 || n_streams > INT32_MAX || n_levels < 1 || n_levels > SDS_MAX_RANK ||
        max_fetches < 1)
        return 0;
    if (client->page_bytes < 1 || client->page_bytes > MAX_CLIENT || client->gap_bytes < 0 ||
        client->gap_bytes > MAX_CLIENT || client->window_bytes < 0 ||
        client->window_bytes > MAX_CLIENT || client->after < 0 || striping->stripe_count < 1 ||
        striping->stripe_count >= MAX_SERVERS || striping->stripe_bytes < 1 ||
        striping->stripe_bytes % client->page_bytes != 0 ||
        client->window_bytes % client->page_bytes != 0 ||
        client->end_bytes % client->page_bytes != 0)
        return 0;
    const double rate[] = {rates->run_s,   rates->run_byte_s,  rates->trip_s,
                           rates->reply_s, rates->sent_byte_s, rates->first_s,
                           rates->seek_s,  rates->read_byte_s};
    for (size_t i = 0; i < sizeof rate / sizeof *rate; i++)
        if (!(rate[i] >= 0.0 && rate[i] <= 1e3)) return 0;
    for (size_t s = 0; s < n_streams; s++) {
        const sds_queue_stream *one = &streams[s];
        int64_t total = 1, reach;
        if (one->begin_bytes < 0 || one->run_bytes < 1 || one->nodes == 0 ||
            __builtin_add_overflow(one->begin_bytes, one->run_bytes, &reach))
            return 0;
        for (int32_t k = 0; k < n_levels; k++) {
            int64_t span;
            if (one->count[k] < 1 || (one->count[k] > 1 && one->stride_bytes[k] < 1) ||
                __builtin_mul_overflow(total, one->count[k], &total) ||
                __builtin_mul_overflow(one->count[k], one->stride_bytes[k], &span) ||
                __builtin_add_overflow(reach, span, &reach))
                return 0;
            /* What a key has room for. */
            if (reach / client->page_bytes >= MAX_PAGES) return 0;
        }
    }
    return 1;
}

sds_status sds_follow_queues(size_t n_streams, const sds_queue_stream streams[], int32_t n_levels,
                             const sds_striping *striping, const sds_queue_client *client,
                             const sds_queue_rates *rates, int64_t max_fetches, sds_queued *out)
{
    if (!is_valid(n_streams, streams, n_levels, striping, client, rates, max_fetches))
        return SDS_EINVAL;
    network net = {.n_streams = n_streams,
                   .stream = streams,
                   .n_levels = n_levels,
                   .striping = *striping,
                   .client = *client,
                   .rates = *rates,
                   .free_piece = NONE};
    net.walker = calloc(n_streams, sizeof *net.walker);
    net.server = calloc((size_t)striping->stripe_count, sizeof *net.server);
    sds_status status = SDS_ENOMEM;
    net.ended = calloc((size_t)striping->stripe_count, sizeof *net.ended);
    if (net.walker != NULL && net.server != NULL && net.ended != NULL) {
        for (int64_t i = 0; i < striping->stripe_count; i++)
            net.server[i] = (server){.waiting = NONE, .head = -1};
        status = run(&net, max_fetches, out);
    }
    free(net.walker);
    free(net.server);
    free(net.cells.cell);
    free(net.piece);
    free(net.arrived.piece);
    free(net.ready.piece);
    free(net.ended);
    sds__event_queue_free(&net.queue);
    return status;
}
