#include "pieces.h"

#include <string.h>

#include "arithmetic.h"

static sds_status check_runs(const sds_runs *runs)
{
    if (runs->first_offset < 0 || runs->run_bytes < 0 || runs->n_levels < 0 ||
        runs->n_levels > SDS__MAX_ACCESS_LEVELS)
        return SDS_EINVAL;
    int64_t end, total = runs->run_bytes, span = runs->run_bytes;
    for (int32_t k = runs->n_levels - 1; k >= 0; k--) {
        const sds_level *level = &runs->level[k];
        int64_t reach;
        if (level->count < 1 || level->stride_bytes < 0 ||
            (level->count > 1 && level->stride_bytes < span))
            return SDS_EINVAL;
        if (__builtin_mul_overflow(level->count - 1, level->stride_bytes, &reach) ||
            __builtin_add_overflow(span, reach, &span) ||
            __builtin_mul_overflow(total, level->count, &total))
            return SDS_EOVERFLOW;
    }
    return __builtin_add_overflow(runs->first_offset, span, &end) ? SDS_EOVERFLOW : SDS_OK;
}

static sds_status check_pieces(size_t n, const sds_piece pieces[])
{
    int64_t end, total = 0, before = 0;
    if (n > INT64_MAX) return SDS_EOVERFLOW;
    for (size_t i = 0; i < n; i++) {
        const sds_piece *piece = &pieces[i];
        if (piece->offset < before || piece->length <= 0 || piece->position < 0) return SDS_EINVAL;
        if (__builtin_add_overflow(piece->offset, piece->length, &end) ||
            __builtin_add_overflow(piece->position, piece->length, &end) ||
            __builtin_add_overflow(total, piece->length, &total))
            return SDS_EOVERFLOW;
        before = piece->offset;
    }
    return SDS_OK;
}

sds_status sds__access_check(const sds__access *access)
{
    return access->runs != NULL ? check_runs(access->runs)
                                : check_pieces(access->n, access->pieces);
}

int64_t sds__access_pieces(const sds__access *access)
{
    return access->runs != NULL ? sds_runs_pieces(access->runs) : (int64_t)access->n;
}

int64_t sds__piece_offset(const sds__access *access, int64_t piece)
{
    const sds_runs *runs = access->runs;
    if (runs == NULL) return access->pieces[piece].offset;
    int64_t offset = runs->first_offset;
    for (int32_t k = runs->n_levels - 1; k >= 0 && piece > 0; k--) {
        offset += piece % runs->level[k].count * runs->level[k].stride_bytes;
        piece /= runs->level[k].count;
    }
    return offset;
}

sds__group sds__access_whole(const sds__access *access)
{
    sds__group whole = {.n_pieces = sds__access_pieces(access)};
    int64_t end;
    if (access->runs != NULL) {
        const sds_runs *runs = access->runs;
        whole.offset = runs->first_offset;
        whole.bytes_useful = whole.n_pieces * runs->run_bytes;
        end = runs->first_offset + runs->run_bytes;
        for (int32_t k = 0; k < runs->n_levels; k++)
            end += (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    } else {
        whole.offset = end = access->pieces[0].offset;
        for (size_t i = 0; i < access->n; i++) {
            whole.bytes_useful += access->pieces[i].length;
            end = sds__greatest(end, access->pieces[i].offset + access->pieces[i].length);
        }
    }
    whole.length = end - whole.offset;
    return whole;
}

/* A piece longer than a group may be. */
static int64_t parts_of_piece(int64_t length, int64_t max_bytes)
{
    return sds__divide_up(length, max_bytes);
}

/* The innermost levels whose holes are all read along make up the core: one range, unless it is
 * cut. Where an outer level's hole is small again, the last core before its step and the first one
 * after it are one group: never more than these two, as between cores there is a large hole. */
static void init_regular(sds__group_cursor *cursor)
{
    const sds_runs *runs = cursor->access->runs;
    int32_t n = 0;
    for (int32_t k = 0; k < runs->n_levels; k++)
        if (runs->level[k].count > 1) cursor->level[n++] = runs->level[k];
    cursor->unit_offset = runs->first_offset;
    cursor->unit_span = runs->run_bytes;
    cursor->unit_pieces = 1;
    cursor->n_parts = 1;
    cursor->n_levels = n;
    cursor->done = runs->run_bytes == 0;
    if (cursor->done) return;
    if (runs->run_bytes > cursor->max_bytes) {
        cursor->n_parts = parts_of_piece(runs->run_bytes, cursor->max_bytes);
        memset(cursor->joins, 0, (size_t)n);
        memset(cursor->index, 0, (size_t)n * sizeof *cursor->index);
        return;
    }
    int is_core = 1;
    int64_t span = runs->run_bytes;
    for (int32_t k = n - 1; k >= 0; k--) {
        const sds_level level = cursor->level[k];
        const int is_near = level.stride_bytes - span <= cursor->max_hole;
        span += (level.count - 1) * level.stride_bytes;
        is_core = is_core && is_near;
        cursor->joins[k] = (uint8_t)is_near;
        cursor->index[k] = 0;
        if (!is_core) continue;
        cursor->n_levels = k;
        const int64_t steps =
            sds__least((cursor->max_bytes - cursor->unit_span) / level.stride_bytes + 1,
                       cursor->max_pieces / cursor->unit_pieces);
        if (steps < level.count) {
            cursor->n_parts = sds__divide_up(level.count, steps);
            cursor->part_count = level.count;
            cursor->part_stride = level.stride_bytes;
            cursor->part_span = cursor->unit_span;
            cursor->part_pieces = cursor->unit_pieces;
        }
        cursor->unit_span = span;
        cursor->unit_pieces *= level.count;
        if (steps < level.count) {
            memset(cursor->joins, 0, (size_t)k);
            memset(cursor->index, 0, (size_t)k * sizeof *cursor->index);
            return;
        }
    }
    const int is_room = cursor->max_pieces / 2 >= cursor->unit_pieces;
    span = cursor->unit_span;
    for (int32_t k = cursor->n_levels - 1; k >= 0; k--) {
        const int64_t hole = cursor->level[k].stride_bytes - span;
        span += (cursor->level[k].count - 1) * cursor->level[k].stride_bytes;
        if (!is_room || cursor->max_bytes - cursor->unit_span - cursor->unit_span < hole)
            cursor->joins[k] = 0;
    }
}

void sds__group_cursor_init(sds__group_cursor *cursor, const sds__access *access, int64_t max_hole,
                            int64_t max_bytes, int64_t max_pieces)
{
    cursor->access = access;
    cursor->max_hole = max_hole;
    cursor->max_bytes = max_bytes;
    cursor->max_pieces = max_pieces;
    cursor->next_piece = 0;
    cursor->part = 0;
    cursor->part_count = 0;
    if (access->runs != NULL)
        init_regular(cursor);
    else
        cursor->done = access->n == 0;
}

/* Part of a piece that is split. */
static void split_piece(const sds__group_cursor *cursor, int64_t offset, int64_t length,
                        sds__group *out)
{
    out->skip_bytes = cursor->part * cursor->max_bytes;
    out->offset = offset + out->skip_bytes;
    out->length = out->bytes_useful = sds__least(cursor->max_bytes, length - out->skip_bytes);
    out->first_piece = cursor->next_piece;
    out->n_pieces = 1;
}

/* Step to the next unit; return the level that stepped, or -1 at the end. */
static int32_t advance_unit(sds__group_cursor *cursor)
{
    for (int32_t k = cursor->n_levels - 1; k >= 0; k--) {
        if (++cursor->index[k] < cursor->level[k].count) {
            cursor->unit_offset += cursor->level[k].stride_bytes;
            return k;
        }
        cursor->index[k] = 0;
        cursor->unit_offset -= (cursor->level[k].count - 1) * cursor->level[k].stride_bytes;
    }
    cursor->done = 1;
    return -1;
}

/* How many steps of the level that is cut lie before a part: as even as possible. */
static int64_t steps_before(const sds__group_cursor *cursor, int64_t part)
{
    return part * (cursor->part_count / cursor->n_parts) +
           sds__least(part, cursor->part_count % cursor->n_parts);
}

static void next_regular(sds__group_cursor *cursor, sds__group *out)
{
    const int64_t run_bytes = cursor->access->runs->run_bytes;
    if (cursor->n_parts > 1 && cursor->part_count == 0) {
        split_piece(cursor, cursor->unit_offset, run_bytes, out);
    } else if (cursor->n_parts > 1) {
        const int64_t first = steps_before(cursor, cursor->part);
        const int64_t n = steps_before(cursor, cursor->part + 1) - first;
        out->offset = cursor->unit_offset + first * cursor->part_stride;
        out->length = (n - 1) * cursor->part_stride + cursor->part_span;
        out->n_pieces = n * cursor->part_pieces;
        out->first_piece = cursor->next_piece + first * cursor->part_pieces;
        out->skip_bytes = 0;
        out->bytes_useful = out->n_pieces * run_bytes;
    } else {
        out->offset = cursor->unit_offset;
        out->length = cursor->unit_span;
        out->n_pieces = cursor->unit_pieces;
        out->first_piece = cursor->next_piece;
        out->skip_bytes = 0;
        const int32_t stepped = advance_unit(cursor);
        if (stepped >= 0 && cursor->joins[stepped]) {
            out->length = cursor->unit_offset + cursor->unit_span - out->offset;
            out->n_pieces += cursor->unit_pieces;
            (void)advance_unit(cursor);
        }
        out->bytes_useful = out->n_pieces * run_bytes;
        cursor->next_piece += out->n_pieces;
        return;
    }
    if (++cursor->part < cursor->n_parts) return;
    cursor->part = 0;
    cursor->next_piece += cursor->unit_pieces;
    (void)advance_unit(cursor);
}

static void next_of_list(sds__group_cursor *cursor, sds__group *out)
{
    const sds_piece *pieces = cursor->access->pieces;
    const int64_t n = (int64_t)cursor->access->n;
    const sds_piece *first = &pieces[cursor->next_piece];
    if (first->length > cursor->max_bytes) {
        split_piece(cursor, first->offset, first->length, out);
        if (++cursor->part == parts_of_piece(first->length, cursor->max_bytes)) {
            cursor->part = 0;
            cursor->done = ++cursor->next_piece == n;
        }
        return;
    }
    const int64_t most = sds__least(cursor->max_pieces, n - cursor->next_piece);
    int64_t end = first->offset + first->length;
    int64_t useful = first->length;
    int64_t taken = 1;
    for (; taken < most; taken++) {
        const sds_piece *piece = &first[taken];
        const int64_t hole = sds__greatest(piece->offset - end, 0);
        const int64_t longer = sds__greatest(end, piece->offset + piece->length);
        if (hole > cursor->max_hole || longer - first->offset > cursor->max_bytes) break;
        end = longer;
        useful += piece->length;
    }
    out->offset = first->offset;
    out->length = end - first->offset;
    out->bytes_useful = useful;
    out->first_piece = cursor->next_piece;
    out->skip_bytes = 0;
    out->n_pieces = taken;
    cursor->next_piece += taken;
    cursor->done = cursor->next_piece == n;
}

int sds__group_next(sds__group_cursor *cursor, sds__group *out)
{
    if (cursor->done) return 0;
    if (cursor->access->runs != NULL)
        next_regular(cursor, out);
    else
        next_of_list(cursor, out);
    return 1;
}

static void add_group(sds__group_totals *totals, const sds__group *group)
{
    totals->groups++;
    totals->bytes_useful += group->bytes_useful;
    totals->bytes_read += group->length;
    totals->longest_bytes = sds__greatest(totals->longest_bytes, group->length);
    if (group->n_pieces > 1)
        totals->longest_merged_bytes = sds__greatest(totals->longest_merged_bytes, group->length);
    totals->most_pieces = sds__greatest(totals->most_pieces, group->n_pieces);
}

/* From the parts of one unit, times the units, less the pairs of units that are one group. */
static void totals_of_regular(const sds__group_cursor *cursor, sds__group_totals *out)
{
    const int64_t run_bytes = cursor->access->runs->run_bytes;
    int64_t units = 1;
    out->longest_bytes = cursor->unit_span;
    out->most_pieces = cursor->unit_pieces;
    int64_t unit_bytes = cursor->unit_span; /* that are read for one */
    if (cursor->n_parts > 1 && cursor->part_count == 0) {
        out->longest_bytes = cursor->max_bytes;
    } else if (cursor->n_parts > 1) {
        const int64_t most = sds__divide_up(cursor->part_count, cursor->n_parts);
        out->longest_bytes = (most - 1) * cursor->part_stride + cursor->part_span;
        out->most_pieces = most * cursor->part_pieces;
        unit_bytes = (cursor->part_count - cursor->n_parts) * cursor->part_stride +
                     cursor->n_parts * cursor->part_span;
    }
    for (int32_t k = 0; k < cursor->n_levels; k++)
        units *= cursor->level[k].count;
    int64_t pairs = 0, bytes_between = 0;
    int64_t outside = units; /* steps of the levels around */
    int64_t span = cursor->unit_span;
    for (int32_t k = cursor->n_levels - 1; k >= 0; k--) {
        const sds_level level = cursor->level[k];
        outside /= level.count;
        if (cursor->joins[k]) {
            const int64_t hole = level.stride_bytes - span;
            const int64_t joined = (level.count - 1) * outside;
            pairs += joined;
            bytes_between += joined * hole;
            out->longest_bytes = sds__greatest(out->longest_bytes, 2 * cursor->unit_span + hole);
            out->most_pieces = 2 * cursor->unit_pieces;
        }
        span += (level.count - 1) * level.stride_bytes;
    }
    out->groups = units * cursor->n_parts - pairs;
    out->pieces = units * cursor->unit_pieces;
    out->bytes_useful = out->pieces * run_bytes;
    out->bytes_read = units * unit_bytes + bytes_between;
    out->longest_merged_bytes = out->most_pieces > 1 ? out->longest_bytes : 0;
}

void sds__group_totals_of(const sds__access *access, int64_t max_hole, int64_t max_bytes,
                          int64_t max_pieces, sds__group_totals *out)
{
    sds__group_cursor cursor;
    *out = (sds__group_totals){0};
    sds__group_cursor_init(&cursor, access, max_hole, max_bytes, max_pieces);
    if (cursor.done) return;
    if (access->runs != NULL) {
        totals_of_regular(&cursor, out);
        return;
    }
    sds__group group;
    while (sds__group_next(&cursor, &group))
        add_group(out, &group);
    out->pieces = (int64_t)access->n;
}
