#include "trace_streams.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"

static void take_shape(const sds__added_read *read, sds__shape *shape)
{
    const sds_hyperslab *slab = read->slab;
    *shape = (sds__shape){.dataset = read->dataset,
                          .thread = read->thread,
                          .kind = read->kind,
                          .rank = slab->rank,
                          .n_elements = read->n_elements,
                          .served_by = read->served_by,
                          .collective = read->collective};
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        shape->axis[axis].stride = slab->stride[axis];
        shape->axis[axis].count = slab->count[axis];
        shape->axis[axis].block = slab->block[axis];
    }
}

static uint64_t shape_hash(const sds__added_read *read)
{
    const sds_hyperslab *slab = read->slab;
    uint64_t hash =
        sds__mix((uint64_t)read->dataset << 32 | read->thread, (uint64_t)read->n_elements);
    hash = sds__mix(hash, (uint64_t)read->served_by);
    hash = sds__mix(hash, (uint64_t)read->kind << 32 | (uint64_t)read->collective << 16 |
                              (uint64_t)slab->rank);
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        hash = sds__mix(hash, (uint64_t)slab->stride[axis]);
        hash = sds__mix(hash, (uint64_t)slab->count[axis]);
        hash = sds__mix(hash, (uint64_t)slab->block[axis]);
    }
    return hash;
}

static int is_of_shape(const sds__shape *shape, const sds__added_read *read)
{
    const sds_hyperslab *slab = read->slab;
    if (shape->dataset != read->dataset || shape->thread != read->thread ||
        shape->kind != read->kind || shape->rank != slab->rank ||
        shape->n_elements != read->n_elements || shape->served_by != read->served_by ||
        shape->collective != read->collective)
        return 0;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        if (shape->axis[axis].stride != slab->stride[axis] ||
            shape->axis[axis].count != slab->count[axis] ||
            shape->axis[axis].block != slab->block[axis])
            return 0;
    return 1;
}

/* Of several streams. */
static void move_to_front(sds__streams *streams, int32_t place)
{
    if (place == streams->newest) return;
    if (place == streams->oldest) {
        streams->oldest = streams->newer[place];
    } else {
        streams->newer[streams->older[place]] = streams->newer[place];
        streams->older[streams->newer[place]] = streams->older[place];
    }
    streams->newer[streams->newest] = place;
    streams->older[place] = streams->newest;
    streams->newest = place;
}

/* A stream more, the newest; NULL where memory is exhausted. */
static sds__stream *add_stream(sds__streams *streams, uint64_t hash)
{
    sds__stream *added = calloc(1, sizeof *added);
    if (added == NULL) return NULL;
    const int32_t place = streams->n++;
    added->place = place;
    streams->stream[place] = added;
    streams->hash[place] = hash;
    if (place > 0) {
        streams->newer[streams->newest] = place;
        streams->older[place] = streams->newest;
    }
    streams->newest = place;
    return added;
}

sds__stream *sds__streams_find(const sds__streams *streams, const sds__added_read *read)
{
    sds__stream *recent = streams->recent[read->dataset % SDS__N_RECENT];
    if (recent != NULL && is_of_shape(&recent->fold.shape, read)) return recent;
    if (streams->n == 0) return NULL;
    const uint64_t hash = shape_hash(read);
    for (int32_t i = 0; i < streams->n; i++)
        if (streams->hash[i] == hash && is_of_shape(&streams->stream[i]->fold.shape, read))
            return streams->stream[i];
    return NULL;
}

sds__stream *sds__streams_take(sds__streams *streams, const sds__added_read *read)
{
    const uint64_t hash = shape_hash(read);
    if (streams->n < SDS__N_STREAMS) return add_stream(streams, hash);
    sds__stream *oldest = streams->stream[streams->oldest];
    sds__fold_flush(&oldest->fold);
    streams->hash[oldest->place] = hash;
    return oldest;
}

int sds__streams_may_take(const sds__streams *streams, int64_t since_ns)
{
    if (streams->n < SDS__N_STREAMS) return 1;
    const sds__stream *oldest = streams->stream[streams->oldest];
    return oldest->fold.n_levels == 0 || oldest->used_ns < since_ns;
}

void sds__streams_add(sds__streams *streams, sds__stream *of, const sds__added_read *read,
                      sds__record_emit emit, void *context)
{
    const sds__fold_read folded = {read->slab->start, read->start_ns, read->elapsed_ns};
    if (of->fold.n_levels > 0) {
        sds__fold_add(&of->fold, &folded);
    } else {
        sds__shape shape;
        take_shape(read, &shape);
        sds__fold_begin(&of->fold, &shape, &folded, emit, context);
    }
    of->used_ns = read->start_ns;
    move_to_front(streams, of->place);
    streams->recent[read->dataset % SDS__N_RECENT] = of;
}

void sds__streams_flush(sds__streams *streams)
{
    for (int32_t i = 0; i < streams->n; i++)
        sds__fold_flush(&streams->stream[i]->fold);
}

void sds__streams_forget(sds__streams *streams)
{
    for (int32_t i = 0; i < streams->n; i++)
        streams->stream[i]->fold.n_levels = 0;
    memset(streams->recent, 0, sizeof streams->recent);
}

void sds__streams_free(sds__streams *streams)
{
    for (int32_t i = 0; i < streams->n; i++)
        free(streams->stream[i]);
}
