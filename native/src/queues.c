#include "sds/queues.h"

#include <math.h>
#include <stdlib.h>

#include "arithmetic.h"
#include "event_queue.h"
#include "queue_client.h"
#include "queue_pages.h"

#define NS_PER_S 1e9
#define MAX_NS SDS__QUEUE_MAX_NS
#define MAX_CLIENT (INT64_C(1) << 40)
#define REACH_BYTES (double)(INT64_C(1) << 30)
/* Of a stream in the mean, or nothing would be known of how it goes on. */
#define LEAST_FETCHES 4
#define NONE INT32_C(-1)
/* Messages under way, and parts of fetches; beyond, an operation is given up. */
#define MAX_UNDER_WAY ((size_t)1 << 20)

enum { ASKS, ARRIVES, DISK_ENDS };

/* What one fetch asks of one server: a range of its object. */
typedef struct part {
    int32_t stream;
    int32_t server;
    int32_t in_flight; /* messages */
    int32_t next;      /* free one; -1: the last */
    int64_t sent;      /* up to there it has been asked for */
    int64_t high;
} part;

typedef struct message {
    int32_t part;
    int32_t next; /* free ones, or those that wait for the same disk; -1: the last */
    int64_t low;  /* of the server's object */
    int64_t high;
} message;

/* The processes of a stream. */
typedef struct reader {
    sds__queue_walk walk;
    int32_t n_waiting;   /* parts of the fetch under way */
    int64_t left_bytes;  /* of it, that have not come */
    int64_t answered_ns; /* the last of those that have */
    int64_t working_ns;
    double half_done; /* runs at half of the fetches */
} reader;

typedef struct server {
    int32_t waiting; /* messages, for the disk */
    int32_t reading; /* this one; -1: none */
    int64_t first;   /* and for it these pages */
    int64_t end;
    int64_t swept; /* where the disk last began to read */
    int64_t head;  /* -1: nobody knows */
    int64_t link_free_ns;
    int64_t disk_ns;
    int64_t link_ns;
} server;

/* As the header says. */
_Static_assert(sizeof(reader) + sizeof(sds__event) <= 512, "of a stream");
_Static_assert(sizeof(server) + sizeof(sds__event) <= 512, "of a server");

typedef struct numbers {
    size_t n;
    size_t room;
    int32_t *number;
} numbers;

/* What there is room for: those that are free are a list. */
typedef struct network {
    size_t n_streams;
    sds_striping striping;
    sds_queue_client client;
    sds_queue_rates rates;
    int64_t one_way_ns;
    reader *reader;
    server *server;
    sds__pages pages; /* that servers have read */
    message *message;
    size_t n_messages;
    int32_t free_message;
    part *part;
    size_t n_parts;
    int32_t free_part;
    sds__event_queue queue;
    numbers arrived, ready; /* messages of this instant */
    numbers concerned;      /* servers of this instant, some of them twice */
    int64_t fetches;
    int64_t steps; /* rows looked at, further messages of fetches */
    double fetched_bytes, read_bytes, reads, seeks;
} network;

static int64_t ns_of(double seconds)
{
    const double ns = seconds * NS_PER_S;
    return ns >= (double)MAX_NS ? MAX_NS : (int64_t)(ns + 0.5);
}

static sds_status gather(numbers *some, int32_t number)
{
    if (some->n == some->room) {
        const size_t room = some->room == 0 ? 256 : 2 * some->room;
        int32_t *more = realloc(some->number, room * sizeof *more);
        if (more == NULL) return SDS_ENOMEM;
        some->number = more;
        some->room = room;
    }
    some->number[some->n++] = number;
    return SDS_OK;
}

/* Twice as many of a pool: *n is then their number. */
static sds_status grow(void **pool, size_t *n, size_t item_bytes)
{
    const size_t more = *n == 0 ? 256 : 2 * *n;
    if (more > MAX_UNDER_WAY) return SDS_ELIMIT;
    void *moved = realloc(*pool, more * item_bytes);
    if (moved == NULL) return SDS_ENOMEM;
    *pool = moved;
    *n = more;
    return SDS_OK;
}

static sds_status take_message(network *net, int32_t *taken)
{
    if (net->free_message == NONE) {
        const size_t old = net->n_messages;
        void *pool = net->message;
        const sds_status status = grow(&pool, &net->n_messages, sizeof *net->message);
        if (status != SDS_OK) return status;
        message *more = net->message = pool;
        for (size_t i = old; i < net->n_messages; i++) {
            more[i].next = net->free_message;
            net->free_message = (int32_t)i;
        }
    }
    *taken = net->free_message;
    net->free_message = net->message[*taken].next;
    return SDS_OK;
}

static sds_status take_part(network *net, int32_t *taken)
{
    if (net->free_part == NONE) {
        const size_t old = net->n_parts;
        void *pool = net->part;
        const sds_status status = grow(&pool, &net->n_parts, sizeof *net->part);
        if (status != SDS_OK) return status;
        part *more = net->part = pool;
        for (size_t i = old; i < net->n_parts; i++) {
            more[i].next = net->free_part;
            net->free_part = (int32_t)i;
        }
    }
    *taken = net->free_part;
    net->free_part = net->part[*taken].next;
    return SDS_OK;
}

/* ---- what clients ask for ---- */

/* The next message of a part. */
static sds_status next_message(network *net, int32_t of, int32_t *taken)
{
    const sds_status status = take_message(net, taken);
    if (status != SDS_OK) return status;
    part *p = &net->part[of];
    const int64_t most = net->client.message_bytes, low = p->sent;
    p->sent = sds__least(p->high, (low / most + 1) * most);
    net->message[*taken] = (message){.part = of, .next = NONE, .low = low, .high = p->sent};
    return SDS_OK;
}

/* Where a range of the file lies in the object of one of the servers that it touches. */
static void object_range(const network *net, int64_t from, int64_t to, int64_t at, int64_t *low,
                         int64_t *high)
{
    const int64_t size = net->striping.stripe_bytes, n = net->striping.stripe_count;
    const int64_t first = from / size, last = (to - 1) / size;
    const int64_t mine = first + ((at - first) % n + n) % n;
    const int64_t end = last - ((last - at) % n + n) % n;
    *low = mine / n * size + (mine == first ? from % size : 0);
    *high = end / n * size + (end == last ? (to - 1) % size + 1 : size);
}

/* A fetch reaches its servers. */
static sds_status ask(network *net, int32_t of)
{
    const sds__queue_walk *walk = &net->reader[of].walk;
    const int64_t size = net->striping.stripe_bytes, n = net->striping.stripe_count;
    const int64_t first = walk->low / size, last = (walk->high - 1) / size;
    const int64_t servers = sds__least(n, last - first + 1);
    for (int64_t i = 0; i < servers; i++) {
        int32_t taken, sent;
        sds_status status = take_part(net, &taken);
        if (status != SDS_OK) return status;
        part *p = &net->part[taken];
        *p = (part){.stream = of, .server = (int32_t)((first + i) % n)};
        object_range(net, walk->low, walk->high, p->server, &p->sent, &p->high);
        net->reader[of].n_waiting++;
        while (p->in_flight < net->client.in_flight && p->sent < p->high) {
            p->in_flight++;
            status = next_message(net, taken, &sent);
            if (status == SDS_OK) status = gather(&net->arrived, sent);
            if (status != SDS_OK) return status;
        }
        net->steps += p->in_flight - 1;
    }
    return SDS_OK;
}

/* A process works, and fetches again. */
static sds_status work(network *net, int32_t of, int64_t now_ns)
{
    reader *who = &net->reader[of];
    const int64_t steps = who->walk.steps;
    int64_t working_ns;
    const int is_any = sds__queue_next_fetch(&who->walk, &working_ns);
    net->steps += who->walk.steps - steps;
    who->working_ns += working_ns;
    if (!is_any) {
        who->answered_ns = now_ns + working_ns;
        return SDS_OK;
    }
    who->answered_ns = 0;
    who->left_bytes = who->walk.high - who->walk.low;
    net->fetches++;
    net->fetched_bytes += (double)who->left_bytes;
    const int64_t at = now_ns + working_ns + net->one_way_ns;
    if (at >= MAX_NS) return SDS_ELIMIT;
    return sds__event_push(&net->queue, (sds__event){at, ASKS, of});
}

/* ---- disks ---- */

static int missing(const network *net, int32_t of, int64_t *first, int64_t *end)
{
    const message *m = &net->message[of];
    const int64_t page = net->client.page_bytes;
    return sds__pages_missing(&net->pages, net->part[m->part].server, m->low / page,
                              sds__divide_up(m->high, page), first, end);
}

/* What a disk takes before it reads from here; what is quicker to read through is. Heads are
 * faster the farther they go: a seek grows with the root of its distance. */
static int64_t positioning_ns(network *net, const server *on, int64_t low)
{
    if (on->head == low) return 0;
    if (on->head >= 0) {
        const double distance = fabs((double)(low - on->head));
        const int64_t seek_ns =
            ns_of(net->rates.seek_s + net->rates.reach_s * sqrt(distance / REACH_BYTES));
        const int64_t through_ns = ns_of(distance * net->rates.read_byte_s);
        if (low > on->head && through_ns <= seek_ns) return through_ns;
        net->seeks++;
        return seek_ns;
    }
    net->seeks++;
    return ns_of(net->rates.first_s);
}

/* A disk reads pages [first, end), all that is missing of a message. */
static sds_status read_for(network *net, int32_t of, int64_t first, int64_t end, int64_t now_ns)
{
    const int32_t at = net->part[net->message[of].part].server;
    server *on = &net->server[at];
    const int64_t page = net->client.page_bytes;
    const double n_bytes = (double)((end - first) * page);
    const int64_t taken_ns =
        positioning_ns(net, on, first * page) + ns_of(n_bytes * net->rates.read_byte_s);
    on->reading = of;
    on->first = first;
    on->end = end;
    on->head = end * page;
    on->disk_ns += taken_ns;
    net->reads++;
    net->read_bytes += n_bytes;
    if (now_ns + taken_ns >= MAX_NS) return SDS_ELIMIT;
    return sds__event_push(&net->queue, (sds__event){now_ns + taken_ns, DISK_ENDS, at});
}

static sds_status end_reading(network *net, int32_t at)
{
    server *on = &net->server[at];
    const int32_t of = on->reading;
    on->reading = NONE;
    sds_status status = sds__pages_mark(&net->pages, at, on->first, on->end);
    if (status == SDS_OK) status = gather(&net->concerned, at);
    return status == SDS_OK ? gather(&net->ready, of) : status;
}

/* Whether the disk comes to a before b: upwards from where it last began, then from the lowest. */
static int is_next(const server *on, const message *a, const message *b)
{
    const int a_ahead = a->low >= on->swept, b_ahead = b->low >= on->swept;
    if (a_ahead != b_ahead) return a_ahead;
    return a->low != b->low ? a->low < b->low : a->high < b->high;
}

static int32_t take_waiting(network *net, server *on)
{
    int32_t *best = &on->waiting;
    for (int32_t *at = best; *at != NONE; at = &net->message[*at].next)
        if (is_next(on, &net->message[*at], &net->message[*best])) best = at;
    const int32_t taken = *best;
    *best = net->message[taken].next;
    on->swept = net->message[taken].low;
    return taken;
}

/* An idle disk begins with what comes next. */
static sds_status start_disk(network *net, int32_t at, int64_t now_ns)
{
    server *on = &net->server[at];
    sds_status status = SDS_OK;
    while (on->reading == NONE && on->waiting != NONE && status == SDS_OK) {
        const int32_t of = take_waiting(net, on);
        int64_t first, end;
        status = missing(net, of, &first, &end) ? read_for(net, of, first, end, now_ns)
                                                : gather(&net->ready, of);
    }
    return status;
}

/* Messages that have arrived at this instant wait for disks, unless their pages are in memory. */
static sds_status take_in(network *net)
{
    sds_status status = SDS_OK;
    for (size_t i = 0; i < net->arrived.n && status == SDS_OK; i++) {
        const int32_t of = net->arrived.number[i];
        message *m = &net->message[of];
        const int32_t at = net->part[m->part].server;
        int64_t first, end;
        if (missing(net, of, &first, &end)) {
            m->next = net->server[at].waiting;
            net->server[at].waiting = of;
            status = gather(&net->concerned, at);
        } else {
            status = gather(&net->ready, of);
        }
    }
    net->arrived.n = 0;
    return status;
}

/* ---- links ---- */

static int compare_places(const network *net, int32_t a, int32_t b)
{
    const message *x = &net->message[a], *y = &net->message[b];
    const int32_t at_x = net->part[x->part].server, at_y = net->part[y->part].server;
    if (at_x != at_y) return at_x < at_y ? -1 : 1;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return x->high < y->high ? -1 : x->high > y->high;
}

static int compare_ready(const void *a, const void *b, void *context)
{
    return compare_places(context, *(const int32_t *)a, *(const int32_t *)b);
}

/* A reply has passed the link of its server. */
static sds_status reply(network *net, int32_t of, int64_t sent_ns)
{
    message *m = &net->message[of];
    const int32_t part_of = m->part;
    part *p = &net->part[part_of];
    const int32_t stream = p->stream;
    reader *who = &net->reader[stream];
    who->left_bytes -= m->high - m->low;
    who->answered_ns = sds__greatest(who->answered_ns, sent_ns + net->one_way_ns);
    m->next = net->free_message;
    net->free_message = of;
    if (p->sent < p->high) {
        const int64_t there_and_back_ns = sent_ns + 2 * net->one_way_ns;
        int32_t more;
        const sds_status status = next_message(net, part_of, &more);
        if (status != SDS_OK) return status;
        if (there_and_back_ns >= MAX_NS) return SDS_ELIMIT;
        net->steps++;
        return sds__event_push(&net->queue, (sds__event){there_and_back_ns, ARRIVES, more});
    }
    if (--p->in_flight > 0) return SDS_OK;
    p->next = net->free_part;
    net->free_part = part_of;
    return --who->n_waiting > 0 ? SDS_OK : work(net, stream, who->answered_ns);
}

/* What is ready at this instant shares the link of its server; the same for processes of one node
 * is sent once. */
static sds_status send_all(network *net, int64_t now_ns)
{
    int32_t *ready = net->ready.number;
    const size_t n = net->ready.n;
    if (n > 1) qsort_r(ready, n, sizeof *ready, compare_ready, net);
    net->ready.n = 0;
    for (size_t i = 0, end; i < n; i = end) {
        const int32_t at = net->part[net->message[ready[i]].part].server;
        server *on = &net->server[at];
        int64_t sending_ns = 0;
        for (end = i; end < n && net->part[net->message[ready[end]].part].server == at;) {
            const int32_t same = ready[end];
            const double n_bytes = (double)(net->message[same].high - net->message[same].low);
            uint64_t nodes = 0;
            for (; end < n && compare_places(net, same, ready[end]) == 0; end++)
                nodes |=
                    net->reader[net->part[net->message[ready[end]].part].stream].walk.stream->nodes;
            const int64_t each_ns = ns_of(net->rates.reply_s + n_bytes * net->rates.sent_byte_s);
            sending_ns += sds__queue_times_ns(__builtin_popcountll(nodes), each_ns);
            if (sending_ns >= MAX_NS) return SDS_ELIMIT;
        }
        on->link_ns += sending_ns;
        on->link_free_ns = sds__greatest(on->link_free_ns, now_ns) + sending_ns;
        if (on->link_free_ns >= MAX_NS) return SDS_ELIMIT;
        for (size_t k = i; k < end; k++) {
            const sds_status status = reply(net, ready[k], on->link_free_ns);
            if (status != SDS_OK) return status;
        }
    }
    return SDS_OK;
}

/* ---- time goes on ---- */

/* Everything of one instant: first what arrives and ends, then what servers do next. */
static sds_status happen(network *net)
{
    const int64_t now_ns = net->queue.event[0].time;
    sds_status status = SDS_OK;
    while (net->queue.n > 0 && net->queue.event[0].time == now_ns && status == SDS_OK) {
        const sds__event event = sds__event_pop(&net->queue);
        if (event.kind == ASKS) {
            status = ask(net, event.of);
        } else if (event.kind == ARRIVES) {
            status = gather(&net->arrived, event.of);
        } else {
            status = end_reading(net, event.of);
        }
    }
    if (status == SDS_OK) status = take_in(net);
    for (size_t i = 0; i < net->concerned.n && status == SDS_OK; i++)
        status = start_disk(net, net->concerned.number[i], now_ns);
    net->concerned.n = 0;
    return status == SDS_OK ? send_all(net, now_ns) : status;
}

/* Runs that have come, of the fetch under way in part. */
static double done_of(const reader *who)
{
    const double left = (double)who->left_bytes;
    if (left == 0.0) return (double)who->walk.done;
    return (double)who->walk.done - left / (double)(who->walk.high - who->walk.low);
}

/* What is known after everything until now_ns, and from half_ns on what is left goes on as. */
static void summarise(const network *net, int64_t half_ns, int64_t now_ns, sds_queued *out)
{
    double most = 0.0, total = 0.0, done = 0.0, half = 0.0;
    int64_t last_ns = now_ns;
    *out = (sds_queued){.least_share = 1.0};
    for (size_t s = 0; s < net->n_streams; s++) {
        const reader *who = &net->reader[s];
        const double mine = done_of(who), of = (double)who->walk.total;
        last_ns = sds__greatest(last_ns, who->answered_ns);
        total += of;
        done += mine;
        half += who->half_done;
        most = fmax(most, (of - mine) / fmax(1.0, mine - who->half_done));
        out->least_share = fmin(out->least_share, mine / of);
        out->working_s = fmax(out->working_s, (double)who->working_ns / NS_PER_S);
    }
    /* Once all is fetched, the last answers tell the end. */
    const int64_t until_ns = net->queue.n > 0 ? now_ns : last_ns;
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

static void begin(network *net, const sds_queue_stream streams[], int32_t n_levels)
{
    const int64_t run_ns = ns_of(net->rates.run_s);
    net->one_way_ns = ns_of(net->rates.trip_s / 2);
    for (size_t s = 0; s < net->n_streams; s++)
        sds__queue_walk_init(&net->reader[s].walk, &streams[s], n_levels, &net->client, run_ns,
                             ns_of(net->rates.run_byte_s * (double)streams[s].run_bytes));
    for (int64_t i = 0; i < net->striping.stripe_count; i++)
        net->server[i] = (server){.waiting = NONE, .reading = NONE, .head = -1};
}

static sds_status run(network *net, int64_t max_fetches, sds_queued *out)
{
    const int64_t most = sds__greatest(max_fetches, LEAST_FETCHES * (int64_t)net->n_streams);
    sds_status status = SDS_OK;
    int64_t now_ns = 0, half_ns = 0;
    int is_half = 0;
    for (size_t s = 0; s < net->n_streams && status == SDS_OK; s++)
        status = work(net, (int32_t)s, 0);
    while (net->queue.n > 0 && status == SDS_OK && net->fetches + net->steps < most &&
           !sds__pages_are_full(&net->pages)) {
        now_ns = net->queue.event[0].time;
        if (!is_half && net->fetches + net->steps >= most / 2) {
            is_half = 1;
            half_ns = now_ns;
            for (size_t s = 0; s < net->n_streams; s++)
                net->reader[s].half_done = done_of(&net->reader[s]);
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
        striping->stripe_count >= SDS__PAGES_MAX_SERVERS || striping->stripe_bytes < 1 ||
        striping->stripe_bytes % client->page_bytes != 0 ||
        client->window_bytes % client->page_bytes != 0 ||
        client->end_bytes % client->page_bytes != 0 || client->message_bytes < 1 ||
        client->message_bytes > MAX_CLIENT || client->message_bytes % client->page_bytes != 0 ||
        client->in_flight < 1 || client->in_flight > INT32_MAX)
        return 0;
    const double rate[] = {rates->run_s,   rates->run_byte_s,  rates->trip_s,
                           rates->reply_s, rates->sent_byte_s, rates->first_s,
                           rates->seek_s,  rates->reach_s,     rates->read_byte_s};
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
            if (reach / client->page_bytes >= SDS__PAGES_MAX_PAGES) return 0;
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
                   .striping = *striping,
                   .client = *client,
                   .rates = *rates,
                   .free_message = NONE,
                   .free_part = NONE};
    net.reader = calloc(n_streams, sizeof *net.reader);
    net.server = calloc((size_t)striping->stripe_count, sizeof *net.server);
    sds_status status = SDS_ENOMEM;
    if (net.reader != NULL && net.server != NULL) {
        begin(&net, streams, n_levels);
        status = run(&net, max_fetches, out);
    }
    free(net.reader);
    free(net.server);
    sds__pages_free(&net.pages);
    free(net.message);
    free(net.part);
    free(net.arrived.number);
    free(net.ready.number);
    free(net.concerned.number);
    sds__event_queue_free(&net.queue);
    return status;
}
