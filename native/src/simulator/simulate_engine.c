#include "simulate_engine.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

enum { ARRIVES, GOES_ON, DISK_ENDS, DISK_RESTS, WAKES };

#define NONE INT32_C(-1)
#define MAX_POOL ((size_t)1 << 30)

sds_status sds__engine_init(sds__engine *engine, const sds__machine *machine, size_t n_clients,
                            sds__client *clients, size_t node_words, sds__answered answered,
                            void *context, sds_simulated *counts)
{
    const size_t n_osts = (size_t)machine->given.striping.stripe_count;
    const size_t n_disks = n_osts * (size_t)machine->n_disks;
    memset(engine, 0, sizeof *engine);
    engine->machine = machine;
    engine->answered = answered;
    engine->context = context;
    engine->n_osts = n_osts;
    engine->n_clients = n_clients;
    engine->client = clients;
    engine->node_words = node_words;
    engine->free_message = engine->free_part = NONE;
    engine->blocks_left = SDS__MAX_BLOCKS;
    engine->counts = counts;
    engine->ost = malloc(n_osts * sizeof *engine->ost);
    engine->concerned = malloc(n_osts * sizeof *engine->concerned);
    engine->nodes_met = malloc(node_words * sizeof *engine->nodes_met);
    engine->woken = malloc(n_clients * sizeof *engine->woken);
    engine->disk = malloc(n_disks * sizeof *engine->disk);
    if (engine->disk != NULL)
        for (size_t i = 0; i < n_disks; i++)
            sds__disk_init(&engine->disk[i], &engine->blocks_left);
    if (engine->ost == NULL || engine->disk == NULL || engine->concerned == NULL ||
        engine->nodes_met == NULL || (engine->woken == NULL && n_clients > 0))
        return SDS_ENOMEM;
    for (size_t i = 0; i < n_osts; i++)
        engine->ost[i] = (sds__ost){.arrived = NONE, .ready = NONE};
    return SDS_OK;
}

void sds__engine_free(sds__engine *engine)
{
    if (engine->disk != NULL)
        for (size_t i = 0; i < engine->n_osts * (size_t)engine->machine->n_disks; i++)
            sds__disk_free(&engine->disk[i]);
    free(engine->disk);
    free(engine->ost);
    free(engine->concerned);
    free(engine->nodes_met);
    free(engine->woken);
    free(engine->message);
    free(engine->part);
    free(engine->ready);
    sds__event_queue_free(&engine->queue);
}

/* Twice as many; NULL: no memory. */
static void *grown(void *pool, size_t *n, size_t item_bytes)
{
    const size_t more = *n == 0 ? 64 : *n * 2;
    void *moved = more > MAX_POOL ? NULL : realloc(pool, more * item_bytes);
    if (moved != NULL) *n = more;
    return moved;
}

static int32_t take_message(sds__engine *engine)
{
    if (engine->free_message == NONE) {
        const size_t old = engine->n_messages;
        sds__message *more = grown(engine->message, &engine->n_messages, sizeof *more);
        if (more == NULL) return NONE;
        engine->message = more;
        for (size_t i = old; i < engine->n_messages; i++) {
            more[i].next = engine->free_message;
            engine->free_message = (int32_t)i;
        }
    }
    const int32_t taken = engine->free_message;
    engine->free_message = engine->message[taken].next;
    return taken;
}

static int32_t take_part(sds__engine *engine)
{
    if (engine->free_part == NONE) {
        const size_t old = engine->n_parts;
        sds__part *more = grown(engine->part, &engine->n_parts, sizeof *more);
        if (more == NULL) return NONE;
        engine->part = more;
        for (size_t i = old; i < engine->n_parts; i++) {
            more[i].next = engine->free_part;
            engine->free_part = (int32_t)i;
        }
    }
    const int32_t taken = engine->free_part;
    engine->free_part = engine->part[taken].next;
    return taken;
}

static sds_status push(sds__engine *engine, int64_t time_ns, int32_t kind, int32_t of)
{
    if (time_ns >= SDS_SIMULATOR_MAX_NS) return SDS_ELIMIT;
    return sds__event_push(&engine->queue, (sds__event){time_ns, kind, of});
}

sds_status sds__engine_send(sds__engine *engine, int32_t client, int64_t time_ns)
{
    engine->client[client].done_ns = 0;
    return push(engine, sds__plus_ns(time_ns, engine->machine->latency_ns), ARRIVES, client);
}

sds_status sds__engine_wake(sds__engine *engine, int32_t client, int64_t time_ns)
{
    return push(engine, time_ns, WAKES, client);
}

static void concern(sds__engine *engine, int32_t ost)
{
    if (engine->ost[ost].is_concerned) return;
    engine->ost[ost].is_concerned = 1;
    engine->concerned[engine->n_concerned++] = ost;
}

/* A message reaches its OST. */
static sds_status arrive(sds__engine *engine, int32_t client, int32_t part, int32_t ost,
                         int64_t low, int64_t high)
{
    const int32_t taken = take_message(engine);
    if (taken == NONE) return SDS_ENOMEM;
    engine->message[taken] = (sds__message){.client = client,
                                            .part = part,
                                            .ost = ost,
                                            .low = low,
                                            .high = high,
                                            .next = engine->ost[ost].arrived};
    engine->ost[ost].arrived = taken;
    concern(engine, ost);
    return SDS_OK;
}

/* Where a message of a part that begins there ends. */
static int64_t message_end(const sds__engine *engine, const sds__part *part, int64_t low)
{
    const int64_t rpc = engine->machine->given.rpc_bytes;
    return sds__least(part->high, (low / rpc + 1) * rpc);
}

/* The next message of a part reaches its OST. */
static sds_status go_on(sds__engine *engine, int32_t of)
{
    sds__part *part = &engine->part[of];
    const int64_t low = part->sent;
    part->sent = message_end(engine, part, low);
    return arrive(engine, part->client, of, part->ost, low, part->sent);
}

/* A range of an object, asked for at once. */
static sds_status ask(sds__engine *engine, int32_t client, int32_t ost, int64_t low, int64_t high)
{
    const sds_simulator_parameters *given = &engine->machine->given;
    engine->client[client].n_waiting++;
    if ((high - 1) / given->rpc_bytes == low / given->rpc_bytes)
        return arrive(engine, client, NONE, ost, low, high);
    const int32_t of = take_part(engine);
    if (of == NONE) return SDS_ENOMEM;
    engine->part[of] = (sds__part){.client = client, .ost = ost, .sent = low, .high = high};
    for (int64_t i = 0; i < given->max_rpcs_in_flight && engine->part[of].sent < high; i++) {
        engine->part[of].n_in_flight++;
        const sds_status status = go_on(engine, of);
        if (status != SDS_OK) return status;
    }
    engine->part[of].promised = engine->part[of].sent;
    return SDS_OK;
}

/* A client's request reaches the OSTs. */
static sds_status arrive_all(sds__engine *engine, int32_t of)
{
    const sds_striping *striping = &engine->machine->given.striping;
    const sds__client *client = &engine->client[of];
    const int64_t stripe_bytes = striping->stripe_bytes, n = striping->stripe_count;
    const int64_t most = engine->machine->given.fetch_bytes;
    for (size_t r = 0; r < client->n_ranges; r++) {
        sds__range *range = &client->ranges[r];
        if (range->low == range->high) continue; /* shorter than others */
        const int64_t low = range->low;
        const int64_t high = most > 0 ? sds__least(range->high, low + most) : range->high;
        range->low = high;
        const int64_t first = low / stripe_bytes, last = (high - 1) / stripe_bytes;
        const int64_t osts = sds__least(n, last - first + 1);
        for (int64_t i = 0; i < osts; i++) {
            const int64_t ost = (first + i) % n;
            int64_t from, to;
            if (!sds__deal(low, high, stripe_bytes, n, ost, &from, &to)) continue;
            const sds_status status = ask(engine, of, (int32_t)ost, from, to);
            if (status != SDS_OK) return status;
        }
    }
    return SDS_OK;
}

/* One of the disks that a message waits for has what it wants. */
static void serve(sds__engine *engine, int32_t of)
{
    sds__message *message = &engine->message[of];
    if (--message->n_waiting > 0) return;
    sds__ost *ost = &engine->ost[message->ost];
    message->next = ost->ready;
    ost->ready = of;
}

/* After an access a disk takes a while before it looks for the next. */
static sds_status rest(sds__engine *engine, int32_t of, int64_t now_ns)
{
    sds__disk *disk = &engine->disk[of];
    const int64_t rest_ns = engine->machine->disk_request_ns;
    disk->is_busy = rest_ns > 0;
    if (rest_ns == 0) return SDS_OK;
    disk->busy_ns = sds__plus_ns(disk->busy_ns, rest_ns);
    return push(engine, sds__plus_ns(now_ns, rest_ns), DISK_RESTS, of);
}

static sds_status end_reading(sds__engine *engine, int32_t of, int64_t now_ns)
{
    sds__disk *disk = &engine->disk[of];
    if (!engine->machine->given.ost_forgets) {
        const sds_status status =
            sds__cells_mark(&disk->read, disk->reading_low, disk->reading_high);
        if (status != SDS_OK) return status;
    }
    serve(engine, disk->now.message);
    concern(engine, of / (int32_t)engine->machine->n_disks);
    return rest(engine, of, now_ns);
}

static sds_status end_rest(sds__engine *engine, int32_t of)
{
    engine->disk[of].is_busy = 0;
    concern(engine, of / (int32_t)engine->machine->n_disks);
    return SDS_OK;
}

/* What a message wants of disk i of its OST, in cells; 0: nothing. */
static int cells_of(const sds__machine *machine, const sds__message *message, int64_t i,
                    int64_t *low, int64_t *high)
{
    const sds_raid *raid = &machine->given.raid;
    const int64_t least = raid->min_request_bytes;
    const int64_t from = message->low / least, to = (message->high - 1) / least + 1;
    if (machine->stands_for > 1) { /* whole rows */
        *low = from;
        *high = to;
        return 1;
    }
    int64_t first, last;
    if (!sds__deal(from * least, to * least, raid->unit_bytes, raid->data_disks, i, &first, &last))
        return 0;
    *low = first / machine->cell_bytes;
    *high = last / machine->cell_bytes;
    return 1;
}

/* Messages that have arrived are answered from memory or wait for disks. */
static sds_status take_in(sds__engine *engine, int32_t ost, int64_t now_ns)
{
    const sds__machine *machine = engine->machine;
    int32_t next;
    for (int32_t of = engine->ost[ost].arrived; of != NONE; of = next) {
        sds__message *message = &engine->message[of];
        next = message->next;
        message->n_waiting = 1; /* for this loop to end */
        for (int64_t i = 0; i < machine->n_disks; i++) {
            sds__disk *disk = &engine->disk[ost * machine->n_disks + i];
            /* A forgetful server puts what comes on top of what waits. */
            sds__wanted wanted = {.arrived_ns = machine->given.ost_forgets ? now_ns : 0,
                                  .process = engine->client[message->client].process,
                                  .first_byte = message->low,
                                  .message = of};
            int64_t first, last;
            if (!cells_of(machine, message, i, &wanted.low, &wanted.high)) continue;
            if (wanted.high > machine->given.disk_capacity_bytes / machine->cell_bytes)
                return SDS_ELIMIT;
            if (!sds__cells_missing(&disk->read, wanted.low, wanted.high, &first, &last)) continue;
            const sds_status status = sds__disk_want(disk, &wanted);
            if (status != SDS_OK) return status;
            message->n_waiting++;
        }
        serve(engine, of);
    }
    engine->ost[ost].arrived = NONE;
    return SDS_OK;
}

/* What the elevator comes to next that has to be read, from *first to *last; 0: nothing. What has
 * been read for another meanwhile is served. */
static int next_to_read(sds__engine *engine, sds__disk *disk, int64_t *first, int64_t *last)
{
    while (sds__disk_next(disk, &disk->now)) {
        if (sds__cells_missing(&disk->read, disk->now.low, disk->now.high, first, last)) return 1;
        serve(engine, disk->now.message);
    }
    return 0;
}

/* Likewise of a disk that has but what it has read last. That is an access, too, without a head. */
static sds_status next_of_forgetful(sds__engine *engine, int32_t of, int64_t now_ns, int64_t *first,
                                    int64_t *last, int *is_any)
{
    sds__disk *disk = &engine->disk[of];
    sds_status status;
    while ((status = sds__disk_next_ahead(disk, &disk->now, is_any)) == SDS_OK && *is_any &&
           sds__disk_has_just_read(disk, &disk->now)) {
        serve(engine, disk->now.message);
        status = rest(engine, of, now_ns);
        *is_any = 0;
        if (disk->is_busy || status != SDS_OK) return status;
    }
    *first = disk->now.low;
    *last = disk->now.high;
    return status;
}

/* An idle disk begins with what the elevator comes to next. */
static sds_status start_disk(sds__engine *engine, int32_t of, int64_t now_ns)
{
    const sds__machine *machine = engine->machine;
    sds_simulated *counts = engine->counts;
    sds__disk *disk = &engine->disk[of];
    int64_t first = 0, last = 0;
    int is_any;
    if (machine->given.ost_forgets) {
        const sds_status status = next_of_forgetful(engine, of, now_ns, &first, &last, &is_any);
        if (status != SDS_OK) return status;
    } else {
        is_any = next_to_read(engine, disk, &first, &last);
    }
    if (!is_any) return SDS_OK;
    int is_seek = 1;
    const int64_t cell = machine->cell_bytes;
    const int64_t positioning =
        disk->head < 0 ? machine->first_ns
                       : sds__positioning_ns(machine, disk->head * cell, first * cell, &is_seek);
    const int64_t n_bytes = (last - first) * cell;
    const int64_t taken = sds__plus_ns(positioning, sds__transfer_ns(machine->disk_pace, n_bytes));
    disk->is_busy = 1;
    disk->busy_ns = sds__plus_ns(disk->busy_ns, taken);
    disk->head = last;
    if (machine->given.ost_forgets) disk->swept = last; /* the elevator goes on from there */
    disk->reading_low = first;
    disk->reading_high = last;
    counts->disk_accesses += machine->stands_for;
    counts->disk_seeks += is_seek * machine->stands_for;
    counts->bytes_from_disk += n_bytes * machine->stands_for;
    counts->positioning_ns =
        sds__plus_ns(counts->positioning_ns, sds__times_ns(machine->stands_for, positioning));
    return push(engine, sds__plus_ns(now_ns, taken), DISK_ENDS, of);
}

/* A reply has passed the OST's link. */
static sds_status reply(sds__engine *engine, int32_t of, int64_t sent_ns)
{
    const int64_t latency = engine->machine->latency_ns;
    sds__message *message = &engine->message[of];
    const int32_t client_index = message->client, part_index = message->part;
    sds__client *client = &engine->client[client_index];
    message->next = engine->free_message;
    engine->free_message = of;
    client->done_ns = sds__greatest(client->done_ns, sds__plus_ns(sent_ns, latency));
    if (part_index != NONE) {
        sds__part *part = &engine->part[part_index];
        if (part->promised < part->high) { /* there and back */
            part->promised = message_end(engine, part, part->promised);
            return push(engine, sds__plus_ns(sent_ns, 2 * latency), GOES_ON, part_index);
        }
        if (--part->n_in_flight > 0) return SDS_OK;
        part->next = engine->free_part;
        engine->free_part = part_index;
    }
    if (--client->n_waiting > 0) return SDS_OK;
    for (size_t r = 0; r < client->n_ranges; r++)
        if (client->ranges[r].low < client->ranges[r].high) /* there and back */
            return push(engine, sds__plus_ns(client->done_ns, latency), ARRIVES, client_index);
    return engine->answered(engine->context, client_index, client->done_ns);
}

/* Replies of one instant: nodes to which the ranges have to go. Sorted by range in place. */
static int compare_messages(const void *a, const void *b)
{
    const sds__message *x = *(sds__message *const *)a, *y = *(sds__message *const *)b;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    if (x->high != y->high) return x->high < y->high ? -1 : 1;
    return 0;
}

static void join_nodes(sds__engine *engine, const uint64_t *nodes)
{
    for (size_t w = 0; w < engine->node_words; w++)
        engine->nodes_met[w] |= nodes[w];
}

/* Clients that wait for the same range at the same instant: on how many nodes are they? */
static int64_t nodes_of(sds__engine *engine, sds__message *const same[], size_t n)
{
    if (n == 1) return engine->client[same[0]->client].n_nodes;
    int64_t n_nodes = 0;
    memset(engine->nodes_met, 0, engine->node_words * sizeof *engine->nodes_met);
    for (size_t i = 0; i < n; i++)
        join_nodes(engine, engine->client[same[i]->client].nodes);
    for (size_t w = 0; w < engine->node_words; w++)
        n_nodes += __builtin_popcountll(engine->nodes_met[w]);
    return n_nodes;
}

/* Everything that is ready at this instant shares the link and has passed it at the same time. */
static sds_status send_ready(sds__engine *engine, int32_t of, int64_t now_ns)
{
    const sds__machine *machine = engine->machine;
    sds__ost *ost = &engine->ost[of];
    size_t n = 0;
    for (int32_t m = ost->ready; m != NONE; m = engine->message[m].next) {
        if (n == engine->ready_room) {
            sds__message **more = grown(engine->ready, &engine->ready_room, sizeof *more);
            if (more == NULL) return SDS_ENOMEM;
            engine->ready = more;
        }
        engine->ready[n++] = &engine->message[m];
    }
    ost->ready = NONE;
    if (n > 1) qsort(engine->ready, n, sizeof *engine->ready, compare_messages);
    int64_t sending = 0;
    for (size_t i = 0, end; i < n; i = end) {
        const int64_t n_bytes = engine->ready[i]->high - engine->ready[i]->low;
        for (end = i + 1; end < n; end++)
            if (compare_messages(&engine->ready[i], &engine->ready[end]) != 0) break;
        const int64_t n_nodes = nodes_of(engine, &engine->ready[i], end - i);
        const int64_t each =
            sds__plus_ns(machine->ost_request_ns, sds__transfer_ns(machine->ost_pace, n_bytes));
        sending = sds__plus_ns(sending, sds__times_ns(n_nodes, each));
        engine->counts->messages += n_nodes;
        engine->counts->bytes_sent += n_nodes * n_bytes;
    }
    ost->link_busy_ns = sds__plus_ns(ost->link_busy_ns, sending);
    ost->link_free_ns = sds__plus_ns(sds__greatest(ost->link_free_ns, now_ns), sending);
    for (size_t i = 0; i < n; i++) {
        const int32_t m = (int32_t)(engine->ready[i] - engine->message);
        const sds_status status = reply(engine, m, ost->link_free_ns);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

/* What an OST does after everything that this instant has brought. */
static sds_status decide(sds__engine *engine, int32_t ost, int64_t now_ns)
{
    const int64_t n_disks = engine->machine->n_disks;
    engine->ost[ost].is_concerned = 0;
    sds_status status = take_in(engine, ost, now_ns);
    for (int64_t i = 0; i < n_disks && status == SDS_OK; i++) {
        const int32_t disk = (int32_t)(ost * n_disks + i);
        if (!engine->disk[disk].is_busy) status = start_disk(engine, disk, now_ns);
    }
    if (status == SDS_OK && engine->ost[ost].ready != NONE)
        status = send_ready(engine, ost, now_ns);
    return status;
}

static sds_status happen(sds__engine *engine, const sds__event *event)
{
    switch (event->kind) {
    case ARRIVES:
        return arrive_all(engine, event->of);
    case GOES_ON:
        return go_on(engine, event->of);
    case DISK_ENDS:
        return end_reading(engine, event->of, event->time);
    case DISK_RESTS:
        return end_rest(engine, event->of);
    default:
        engine->woken[engine->n_woken++] = &engine->client[event->of];
        return SDS_OK;
    }
}

static int compare_processes(const void *a, const void *b)
{
    const int64_t x = (*(sds__client *const *)a)->process, y = (*(sds__client *const *)b)->process;
    return x < y ? -1 : x > y;
}

static sds_status wake(sds__engine *engine, int64_t now_ns)
{
    sds_status status = SDS_OK;
    if (engine->n_woken > 1)
        qsort(engine->woken, engine->n_woken, sizeof *engine->woken, compare_processes);
    for (size_t i = 0; i < engine->n_woken && status == SDS_OK; i++)
        status =
            engine->awake(engine->context, (int32_t)(engine->woken[i] - engine->client), now_ns);
    engine->n_woken = 0;
    return status;
}

sds_status sds__engine_run(sds__engine *engine)
{
    sds_status status = SDS_OK;
    while (engine->queue.n > 0 && status == SDS_OK) {
        const int64_t now_ns = engine->queue.event[0].time;
        do {
            const sds__event event = sds__event_pop(&engine->queue);
            status = happen(engine, &event);
            engine->counts->events++;
        } while (status == SDS_OK && engine->queue.n > 0 && engine->queue.event[0].time == now_ns);
        if (engine->counts->events > engine->machine->given.max_events) status = SDS_ELIMIT;
        if (status == SDS_OK) status = wake(engine, now_ns);
        for (size_t i = 0; i < engine->n_concerned && status == SDS_OK; i++)
            status = decide(engine, engine->concerned[i], now_ns);
        engine->n_concerned = 0;
    }
    return status;
}
