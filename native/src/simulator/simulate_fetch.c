/* A client's memory holds whole pages. Runs come in file order, so that of all pages fetched only
 * the end of the last range matters: a run that ends before it costs the process some work and the
 * file system nothing. Many such runs are counted in strides, without a walk. */
#include "simulate_fetch.h"

#include "arithmetic.h"

/* After this many runs, the first of which begins a strip if it is not near, what was before them
 * no longer counts: the lengths of the last two strips are known. */
#define SINGLE_STEPS 2

static int64_t copy_ns_of(const sds__machine *machine, int64_t n_bytes)
{
    return sds__transfer_ns(machine->client_pace, n_bytes);
}

/* Fetch what of these bytes is not there; return 0 where all of it is. */
static int fetch(sds__fetcher *fetcher, int64_t offset, int64_t length, sds__range *out)
{
    const sds_simulator_parameters *given = &fetcher->machine->given;
    const int64_t page = given->page_bytes, ahead = given->read_ahead_bytes;
    out->low = sds__greatest(offset / page * page, fetcher->fetched_end);
    out->high = sds__divide_up(offset + length, page) * page;
    if (out->low >= out->high) return 0;
    if (ahead > 0 && fetcher->n_near >= given->read_ahead_after) {
        int64_t end = sds__least(sds__divide_up(out->high, ahead) * ahead, fetcher->data_end);
        if (fetcher->strip_bytes[0] > 0 && fetcher->strip_bytes[0] == fetcher->strip_bytes[1])
            end = sds__least(end, fetcher->strip_low + fetcher->strip_bytes[0]);
        out->high = sds__greatest(out->high, end);
    }
    fetcher->fetched_end = out->high;
    return 1;
}

/* Runs from here on that the client has, up to the end of the row. */
static int64_t hits(const sds__fetcher *fetcher)
{
    const int64_t end = fetcher->run.offset + fetcher->run.length;
    if (end > fetcher->fetched_end) return 0;
    const int32_t last = fetcher->runs->n_levels - 1;
    if (!fetcher->is_regular || last < 0) return 1;
    const sds_level *row = &fetcher->runs->level[last];
    return sds__least((fetcher->fetched_end - end) / row->stride_bytes + 1,
                      row->count - fetcher->row_index);
}

static int is_near(const sds__fetcher *fetcher, int64_t offset, int64_t end_before)
{
    return offset - end_before <= fetcher->machine->given.read_ahead_gap_bytes;
}

static void begin_strip(sds__fetcher *fetcher, int64_t offset)
{
    const int64_t page = fetcher->machine->given.page_bytes;
    fetcher->n_near = 0;
    fetcher->strip_low = offset / page * page;
}

/* The next request begins here, where the one before ended there. */
static void follow(sds__fetcher *fetcher, int64_t offset, int64_t end_before)
{
    const int64_t page = fetcher->machine->given.page_bytes;
    if (is_near(fetcher, offset, end_before)) {
        fetcher->n_near++;
        return;
    }
    fetcher->strip_bytes[1] = fetcher->strip_bytes[0];
    fetcher->strip_bytes[0] = sds__divide_up(end_before, page) * page - fetcher->strip_low;
    begin_strip(fetcher, offset);
}

/* Go on to the run after this. */
static void step(sds__fetcher *fetcher)
{
    const int32_t last = fetcher->runs->n_levels - 1;
    const int64_t end = fetcher->run.offset + fetcher->run.length;
    ++*fetcher->n_steps;
    fetcher->row_index = last < 0 ? 0 : fetcher->cursor.index[last];
    fetcher->is_done = !sds_run_cursor_next(&fetcher->cursor, &fetcher->run);
    follow(fetcher, fetcher->run.offset, end);
}

/* Go on by n runs, which hits() has found. Return the time it takes to copy them. */
static int64_t skip(sds__fetcher *fetcher, int64_t n)
{
    const int64_t copying = sds__times_ns(n, copy_ns_of(fetcher->machine, fetcher->run.length));
    if (n > SINGLE_STEPS) {
        const int64_t jump = n - SINGLE_STEPS;
        const int32_t last = fetcher->runs->n_levels - 1;
        const int64_t stride = fetcher->runs->level[last].stride_bytes;
        fetcher->run.offset += jump * stride;
        fetcher->row_index += jump;
        /* The cursor is one run ahead, in the same row. */
        fetcher->cursor.index[last] = fetcher->row_index + 1;
        fetcher->cursor.offset = fetcher->run.offset + stride;
        if (is_near(fetcher, stride, fetcher->run.length))
            fetcher->n_near += jump;
        else
            begin_strip(fetcher, fetcher->run.offset);
    }
    for (int64_t i = sds__least(n, SINGLE_STEPS); i > 0; i--)
        step(fetcher);
    return copying;
}

void sds__fetcher_init(sds__fetcher *fetcher, const sds__machine *machine,
                       const sds_simulator_operation *operation, const sds_runs *runs,
                       int64_t *n_steps)
{
    const sds_array *array = &operation->array;
    int64_t end = array->element_bytes;
    for (int32_t axis = 0; axis < array->rank; axis++)
        end *= array->extent[axis];
    *fetcher = (sds__fetcher){
        .machine = machine,
        .operation = operation,
        .runs = runs,
        .n_steps = n_steps,
        .data_end = sds__divide_up(array->offset_bytes + end, machine->given.page_bytes) *
                    machine->given.page_bytes,
        .fetched_end = -1,
        .is_regular =
            !operation->is_request_by_request && sds_runs_count(runs) == sds_runs_pieces(runs),
    };
    sds_run_cursor_init(&fetcher->cursor, fetcher->runs);
    step(fetcher);
    begin_strip(fetcher, runs->first_offset);
    fetcher->strip_bytes[0] = fetcher->strip_bytes[1] = 0;
    sds__ranked_of(fetcher->runs, &fetcher->ranked);
}

static int is_given_up(const sds__fetcher *fetcher)
{
    return *fetcher->n_steps > fetcher->machine->given.max_events;
}

static int next_runs(sds__fetcher *fetcher, sds__range ranges[], size_t *n_ranges, int64_t *work_ns)
{
    const int64_t request_ns = fetcher->machine->client_request_ns;
    const int64_t depth =
        fetcher->operation->strategy == SDS_SIMULATE_LIST ? fetcher->operation->list_depth : 1;
    int64_t work = fetcher->copying_ns;
    fetcher->copying_ns = 0;
    *n_ranges = 0;
    while (!fetcher->is_done && !is_given_up(fetcher)) {
        const int64_t whole = hits(fetcher) / depth;
        if (whole > 0) { /* requests that need nothing */
            work = sds__plus_ns(work, skip(fetcher, whole * depth));
            work = sds__plus_ns(work, sds__times_ns(whole, request_ns));
            fetcher->requests += whole;
            continue;
        }
        int64_t copying = 0;
        for (int64_t left = depth; left > 0 && !fetcher->is_done;) {
            int64_t n = sds__least(hits(fetcher), left);
            if (n == 0) {
                *n_ranges += (size_t)fetch(fetcher, fetcher->run.offset, fetcher->run.length,
                                           &ranges[*n_ranges]);
                n = 1;
            }
            copying = sds__plus_ns(copying, skip(fetcher, n));
            left -= n;
        }
        work = sds__plus_ns(work, request_ns);
        fetcher->requests++;
        if (*n_ranges > 0) {
            fetcher->copying_ns = copying;
            *work_ns = work;
            return 1;
        }
        work = sds__plus_ns(work, copying);
    }
    *work_ns = work;
    return 0;
}

/* The next window begins with the first selected byte that none has held, and ends with the last
 * one of all at the latest. */
static int next_window(sds__fetcher *fetcher, sds__range *range, size_t *n_ranges, int64_t *work_ns)
{
    const sds__ranked *ranked = &fetcher->ranked;
    int64_t work = fetcher->copying_ns;
    fetcher->copying_ns = 0;
    *n_ranges = 0;
    while (fetcher->sieved < ranked->n_bytes && *n_ranges == 0 && !is_given_up(fetcher)) {
        ++*fetcher->n_steps;
        const int64_t low = sds__offset_of(ranked, fetcher->sieved);
        const int64_t last = sds__offset_of(ranked, ranked->n_bytes - 1) + 1;
        const int64_t length = sds__least(fetcher->operation->sieve_buffer_bytes, last - low);
        const int64_t copying = copy_ns_of(fetcher->machine, length);
        fetcher->sieved = sds__bytes_below(ranked, low + length);
        work = sds__plus_ns(work, fetcher->machine->client_request_ns);
        fetcher->requests++;
        *n_ranges = (size_t)fetch(fetcher, low, length, range);
        if (fetcher->sieved < ranked->n_bytes)
            follow(fetcher, sds__offset_of(ranked, fetcher->sieved), low + length);
        if (*n_ranges > 0)
            fetcher->copying_ns = copying;
        else
            work = sds__plus_ns(work, copying);
    }
    *work_ns = work;
    return *n_ranges > 0;
}

int sds__fetcher_next(sds__fetcher *fetcher, sds__range ranges[], size_t *n_ranges,
                      int64_t *work_ns)
{
    if (fetcher->operation->strategy == SDS_SIMULATE_SIEVE)
        return next_window(fetcher, ranges, n_ranges, work_ns);
    return next_runs(fetcher, ranges, n_ranges, work_ns);
}
