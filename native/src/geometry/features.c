/* Every feature of one read: exact, or between bounds once the time budget is spent. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "deadline.h"
#include "disk_map.h"
#include "progression.h"
#include "runs_clip.h"
#include "sieve.h"
#include "touched.h"

/* Nanoseconds that adding one range takes, roughly: sizes the work on bounds. */
#define ADDITION_NS 20
/* Work on bounds that is always affordable, in additions. */
#define LEAST_BOUND_WORK 64

/* Nanoseconds that a step of counting HDF5's requests takes, and most steps without a budget. */
#define SIEVE_STEP_NS 20
#define MOST_SIEVE_STEPS (INT64_C(1) << 22)

/* What is known of a set beside the parts that were walked. */
typedef struct outline {
    int64_t runs;
    int64_t bytes_useful;
    int64_t pieces;         /* ranges that make it up */
    int64_t piece_requests; /* most requests of one of them */
    int64_t requests_low;   /* lower bound of those touched */
    int64_t ost_requests;   /* most requests of one OST */
} outline;

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t saturating_product(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Upper bounds on the holes of every disk, from a superset and the part that is known. */
static void bound_gaps(const sds__touched *part, const sds__touched *whole, sds_features *out)
{
    const sds__disk_map *map = part->map;
    const int64_t scale = map->blocks_per_row > 0 ? map->blocks_per_row : 1;
    int64_t gaps = 0, distance = 0;
    for (int64_t i = 0; i < map->n_slots * map->n_lanes; i++) {
        const sds__line *super = &whole->disks[i];
        if (super->count == 0) continue;
        const int64_t span = super->last - super->first + 1;
        const int64_t missing = span - maximum(part->disks[i].count, 1);
        distance = maximum(distance, missing);
        gaps = maximum(gaps, minimum(minimum(missing, super->count - 1), (span - 1) / 2));
    }
    out->block_gap_count.high = gaps;
    out->block_gap_distance.high = distance * scale;
}

/* Bounds from a part of the set that lies before all the rest, and from a superset. */
static sds_status bound_features(const outline *known, const sds__touched *part,
                                 const sds__touched *whole, sds_features *out)
{
    const sds__disk_map *map = part->map;
    sds_features upper = {0};
    sds_status status = sds__touched_features(part, out);
    if (status == SDS_OK) status = sds__touched_features(whole, &upper);
    if (status != SDS_OK) return status;

    const int64_t requests_high = minimum(upper.bytes_touched.high / map->request_bytes,
                                          saturating_product(known->pieces, known->piece_requests));
    const int64_t requests_low =
        maximum(known->requests_low, sds__divide_up(known->bytes_useful, map->request_bytes));
    int64_t blocks_low = sds__divide_up(known->bytes_useful, map->unit_bytes);
    if (map->request_bytes % map->unit_bytes == 0) /* then requests share no block */
        blocks_low = maximum(
            blocks_low, saturating_product(requests_low, map->request_bytes / map->unit_bytes));
    const int64_t request_depth = /* most blocks of one request on one disk */
        map->blocks_per_row > 0
            ? map->blocks_per_row
            : sds__divide_up((map->request_bytes - 1) / map->unit_bytes + 2, map->data_disks);

    out->bytes_touched.low = maximum(out->bytes_touched.low, requests_low * map->request_bytes);
    out->bytes_touched.high = requests_high * map->request_bytes;
    out->block_depth.low =
        maximum(out->block_depth.low, sds__divide_up(blocks_low, map->n_slots * map->data_disks));
    out->block_depth.high =
        minimum(upper.block_depth.high,
                saturating_product(minimum(requests_high, known->ost_requests), request_depth));
    out->osts_touched.high = minimum(upper.osts_touched.high, requests_high);
    out->disks_touched.high = upper.disks_touched.high;
    /* Gaps of a part stay when more is added behind it: the lower bounds are those of the part. */
    bound_gaps(part, whole, out);
    out->block_gap_count.high =
        minimum(out->block_gap_count.high, minimum(known->runs, known->ost_requests) - 1);
    return SDS_OK;
}

static int is_exact(const sds_features *features)
{
    const sds_bounds all[] = {features->block_depth,        features->block_gap_count,
                              features->block_gap_distance, features->bytes_touched,
                              features->osts_touched,       features->disks_touched};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].low != all[i].high) return 0;
    return 1;
}

/* Memory for n sets, all empty; free lines afterwards. */
static sds_status allocate_sets(const sds__disk_map *map, int32_t n, sds__touched sets[],
                                sds__line **lines)
{
    const int64_t each = sds__touched_lines(map);
    *lines = malloc((size_t)n * (size_t)each * sizeof(sds__line));
    if (*lines == NULL) return SDS_ENOMEM;
    for (int32_t i = 0; i < n; i++)
        sds__touched_init(&sets[i], map, *lines + i * each);
    return SDS_OK;
}

/* Requests that a progression touches at least: where its innermost runs are a request apart, no
 * two runs of a group share one, and neighbouring groups share at most one. */
static int64_t fewest_requests(const sds__progression *progression, const sds__disk_map *map,
                               int64_t pieces)
{
    if (progression->n_levels == 0 || map->cell_bytes != map->request_bytes) return 0;
    return pieces - pieces / progression->level[progression->n_levels - 1].count + 1;
}

/* Requests that a progression touches on one OST at most: pieces that reach into one stripe, times
 * requests of each, times stripes of the OST.
 *
 * Units of level k that reach into a window number at most window / stride_k, and one more for
 * each unit of the level above that does, and one that begins before it. */
static int64_t most_requests_of_ost(const sds__progression *progression, const sds__disk_map *map,
                                    int64_t piece_requests, int64_t end)
{
    int64_t pieces = 1;
    for (int32_t k = 0; k < progression->n_levels; k++)
        pieces += map->stripe_bytes / progression->level[k].stride_bytes + 1;
    const int64_t stripes = (end - 1) / map->stripe_bytes - map->first_stripe + 1;
    return saturating_product(saturating_product(pieces, piece_requests),
                              sds__divide_up(stripes, map->stripe_count));
}

/* What features may cost. */
typedef struct limits {
    sds__deadline deadline;
    int64_t sieve_steps;     /* of counting HDF5's requests */
    int64_t bound_additions; /* for bounds, once the deadline has passed */
} limits;

static sds_status find_features(const sds_runs *runs, const sds_striping *striping,
                                const sds_raid *raid, limits within, sds_features *out)
{
    sds__deadline deadline = within.deadline;
    if (runs->run_bytes < 0 || runs->n_levels < 0 || runs->n_levels > SDS__MAX_LEVELS)
        return SDS_EINVAL;
    sds__disk_map map;
    sds_status status =
        sds__disk_map_init(&map, striping, raid, runs->first_offset, sds__runs_end(runs));
    if (status != SDS_OK) return status;
    memset(out, 0, sizeof *out);
    out->exact = 1;
    if (runs->run_bytes == 0) return SDS_OK;

    sds__progression progression;
    sds__progression_init(&progression, runs, &map);
    /* What was touched in time, a superset of it all, and what walking needs. */
    sds__touched sets[SDS__MAX_LEVELS + 3];
    sds__line *lines;
    status = allocate_sets(&map, sds__progression_sets(&progression) + 2, sets, &lines);
    if (status != SDS_OK) return status;
    sds__progression_touch(&progression, &deadline, &sets[0], &sets[1]);

    out->runs = sds_runs_count(runs);
    out->bytes_useful = sds_runs_bytes(runs);
    sds__sieve_count(runs, SDS_SIEVE_BYTES, SDS__PAGE_BYTES, within.sieve_steps, &out->sieve);
    if (!deadline.passed) {
        status = sds__touched_features(&sets[0], out);
        free(lines);
        return status;
    }

    outline known = {.runs = out->runs, .bytes_useful = out->bytes_useful, .pieces = 1};
    for (int32_t k = 0; k < progression.n_levels; k++)
        known.pieces *= progression.level[k].count;
    known.piece_requests = (progression.run_bytes + map.cell_bytes - 2) / map.cell_bytes + 1;
    known.requests_low = fewest_requests(&progression, &map, known.pieces);
    known.ost_requests =
        most_requests_of_ost(&progression, &map, known.piece_requests, sds__runs_end(runs));
    const double affordable = (double)maximum(within.bound_additions, LEAST_BOUND_WORK);
    while (progression.n_levels > 0 && progression.cost > affordable)
        sds__progression_fill(&progression, &map);
    sds__deadline never = sds__deadline_in(0);
    sds__touched *whole = &sets[1];
    sds__touched_clear(whole);
    sds__progression_touch(&progression, &never, whole, &sets[2]);
    status = bound_features(&known, &sets[0], whole, out);
    out->exact = is_exact(out);
    free(lines);
    return status;
}

sds_status sds_features_of_runs(const sds_runs *runs, const sds_striping *striping,
                                const sds_raid *raid, int64_t budget_ns, sds_features *out)
{
    const limits within = {
        .deadline = sds__deadline_in(budget_ns),
        .sieve_steps = budget_ns > 0 ? budget_ns / 5 / SIEVE_STEP_NS + 1 : MOST_SIEVE_STEPS,
        .bound_additions = budget_ns / 4 / ADDITION_NS,
    };
    return find_features(runs, striping, raid, within, out);
}

sds_status sds_features_in_steps(const sds_runs *runs, const sds_striping *striping,
                                 const sds_raid *raid, int64_t most_steps, sds_features *out)
{
    const limits within = {
        .deadline = sds__deadline_after(most_steps),
        .sieve_steps = most_steps / 4 + 1,
        .bound_additions = most_steps / 4,
    };
    return find_features(runs, striping, raid, within, out);
}

/* Check the extents; count runs (extents that touch are one) and bytes. */
static sds_status outline_extents(size_t n, const sds_extent extents[], outline *out)
{
    int64_t end = -1;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        if (extents[i].offset < 0 || extents[i].length <= 0) return SDS_EINVAL;
        if (extents[i].offset < end) return SDS_EINVAL;
        out->runs += extents[i].offset != end;
        out->bytes_useful += extents[i].length;
        if (__builtin_add_overflow(extents[i].offset, extents[i].length, &end))
            return SDS_EOVERFLOW;
    }
    /* Without a bound by pieces: the superset's counts bound from above. */
    out->pieces = INT64_MAX;
    out->piece_requests = 1;
    out->ost_requests = INT64_MAX;
    return SDS_OK;
}

sds_status sds_features_of_extents(size_t n, const sds_extent extents[],
                                   const sds_striping *striping, const sds_raid *raid,
                                   int64_t budget_ns, sds_features *out)
{
    sds__deadline deadline = sds__deadline_in(budget_ns);
    outline known;
    sds_status status = outline_extents(n, extents, &known);
    if (status != SDS_OK) return status;
    const int64_t begin = n == 0 ? 0 : extents[0].offset;
    const int64_t end = n == 0 ? 0 : extents[n - 1].offset + extents[n - 1].length;
    sds__disk_map map;
    status = sds__disk_map_init(&map, striping, raid, begin, end);
    if (status != SDS_OK) return status;
    memset(out, 0, sizeof *out);
    out->exact = 1;
    if (n == 0) return SDS_OK;

    sds__touched sets[2];
    sds__line *lines;
    status = allocate_sets(&map, 2, sets, &lines);
    if (status != SDS_OK) return status;
    size_t done = 0;
    for (; done < n && !deadline.passed; done++) {
        sds__touched_add(&sets[0], extents[done].offset,
                         extents[done].offset + extents[done].length);
        sds__deadline_step(&deadline);
    }
    out->runs = known.runs;
    out->bytes_useful = known.bytes_useful;
    out->sieve = (sds_sieve){(int64_t)n, known.runs, known.bytes_useful};
    if (done == n) {
        status = sds__touched_features(&sets[0], out);
    } else {
        sds__touched_copy(&sets[1], &sets[0]);
        sds__touched_add(&sets[1], extents[done].offset, end);
        status = bound_features(&known, &sets[0], &sets[1], out);
        out->exact = is_exact(out);
    }
    free(lines);
    return status;
}
