#include "read_shape.h"

#include <string.h>

#include "arithmetic.h"

void sds__census_add_bound(sds__hole_census *census, int64_t bound)
{
    int at = 0;
    while (at < census->n_bounds && census->bound[at] < bound)
        at++;
    if (at < census->n_bounds && census->bound[at] == bound) return;
    memmove(&census->bound[at + 1], &census->bound[at],
            (size_t)(census->n_bounds - at) * sizeof *census->bound);
    census->bound[at] = bound;
    census->n_bounds++;
}

void sds__census_take(sds__hole_census *census, const sds__access *access)
{
    const sds_piece *pieces = access->pieces;
    int64_t end = pieces[0].offset;
    memset(census->holes, 0, sizeof census->holes);
    memset(census->bytes, 0, sizeof census->bytes);
    for (size_t i = 0; i < access->n; i++) {
        const int64_t hole = sds__greatest(pieces[i].offset - end, 0);
        int class = census->n_bounds; /* most holes of a scattered read are beyond all bounds */
        while (class > 0 && hole <= census->bound[class - 1])
            class--;
        census->holes[class]++;
        census->bytes[class] += hole;
        end = sds__greatest(end, pieces[i].offset + pieces[i].length);
    }
    census->span = end - pieces[0].offset;
}

void sds__read_shape_init(sds__read_shape *shape, const sds__access *access)
{
    *shape = (sds__read_shape){.access = access, .n_pieces = sds__access_pieces(access)};
    shape->runs = access->runs != NULL ? sds_runs_count(access->runs) : shape->n_pieces;
    if (access->runs != NULL) shape->bytes_useful = sds_runs_bytes(access->runs);
    for (size_t i = 0; access->runs == NULL && i < access->n; i++)
        shape->bytes_useful += access->pieces[i].length;
}

static void estimate(const sds__read_shape *shape, int64_t max_hole, int64_t max_bytes,
                     int64_t max_pieces, sds__group_totals *out)
{
    const sds__hole_census *census = shape->census;
    int64_t groups = 1, left_out = 0;
    for (int c = 1; c <= census->n_bounds; c++)
        if (census->bound[c - 1] >= max_hole) {
            groups += census->holes[c];
            left_out += census->bytes[c];
        }
    if (max_hole == SDS__JOIN_NOTHING) groups = shape->n_pieces;
    out->pieces = shape->n_pieces;
    out->bytes_useful = shape->bytes_useful;
    out->bytes_read = max_hole == SDS__JOIN_NOTHING ? shape->bytes_useful : census->span - left_out;
    groups = sds__greatest(groups, sds__divide_up(out->bytes_read, max_bytes));
    groups = sds__greatest(groups, sds__divide_up(shape->n_pieces, max_pieces));
    out->groups = groups;
    out->longest_bytes = sds__least(max_bytes, out->bytes_read);
    out->longest_merged_bytes = groups < shape->n_pieces ? out->longest_bytes : 0;
    out->most_pieces = sds__least(max_pieces, shape->n_pieces - groups + 1);
}

sds__group_totals sds__count(const sds__read_shape *shape, int64_t max_hole, int64_t max_bytes,
                             int64_t max_pieces)
{
    sds__group_totals totals;
    if (shape->census != NULL)
        estimate(shape, max_hole, max_bytes, max_pieces, &totals);
    else
        sds__group_totals_of(shape->access, max_hole, max_bytes, max_pieces, &totals);
    return totals;
}
