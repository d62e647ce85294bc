/* From groups to pieces: walking them, and copying them to their places. */
#include <string.h>

#include "arithmetic.h"
#include "copy.h"
#include "pieces.h"

void sds__strip_cursor_init(sds__strip_cursor *cursor, const sds__access *access,
                            const sds__group *group)
{
    const sds_runs *runs = access->runs;
    cursor->access = access;
    cursor->piece = group->first_piece;
    cursor->left = group->n_pieces;
    cursor->skip_bytes = group->skip_bytes;
    cursor->part_bytes = group->n_pieces == 1 ? group->length : 0;
    cursor->offset = group->offset - group->skip_bytes;
    cursor->outer_level = 0;
    if (runs == NULL || cursor->left == 1 || runs->n_levels == 0) return;
    cursor->outer_level = runs->n_levels - 1;
    int64_t rest = cursor->piece;
    for (int32_t k = runs->n_levels - 1; k >= 0; k--) {
        cursor->index[k] = rest % runs->level[k].count;
        rest /= runs->level[k].count;
    }
}

/* Step the levels around the innermost one. */
static void advance_strip(sds__strip_cursor *cursor, const sds_runs *runs)
{
    const int32_t inner = cursor->outer_level;
    cursor->offset -= cursor->index[inner] * runs->level[inner].stride_bytes;
    cursor->index[inner] = 0;
    for (int32_t k = inner - 1; k >= 0; k--) {
        cursor->offset += runs->level[k].stride_bytes;
        if (++cursor->index[k] < runs->level[k].count) return;
        cursor->offset -= runs->level[k].count * runs->level[k].stride_bytes;
        cursor->index[k] = 0;
    }
}

int sds__strip_next(sds__strip_cursor *cursor, sds__strip *out)
{
    if (cursor->left == 0) return 0;
    const sds_runs *runs = cursor->access->runs;
    if (runs == NULL) {
        const sds_piece *piece = &cursor->access->pieces[cursor->piece++];
        out->offset = piece->offset;
        out->length = piece->length;
        out->position = piece->position;
        out->stride = 0;
        out->count = 1;
        cursor->left--;
    } else if (cursor->left == 1 && cursor->part_bytes > 0) {
        out->offset = cursor->offset;
        out->length = runs->run_bytes;
        out->position = cursor->piece * runs->run_bytes;
        out->stride = 0;
        out->count = 1;
        cursor->left = 0;
    } else {
        const sds_level *inner = &runs->level[cursor->outer_level];
        const int64_t at = cursor->index[cursor->outer_level];
        out->offset = cursor->offset;
        out->stride = inner->stride_bytes;
        out->count = sds__least(inner->count - at, cursor->left);
        out->length = runs->run_bytes;
        out->position = cursor->piece * runs->run_bytes;
        cursor->piece += out->count;
        cursor->left -= out->count;
        if (cursor->left > 0) advance_strip(cursor, runs);
        return 1;
    }
    if (cursor->part_bytes > 0) {
        out->offset += cursor->skip_bytes;
        out->position += cursor->skip_bytes;
        out->length = cursor->part_bytes;
    }
    return 1;
}

static void scatter_regular(const sds__access *access, const sds__group *group,
                            const uint8_t *bytes)
{
    sds__strip_cursor cursor;
    sds__strip strip;
    sds__strip_cursor_init(&cursor, access, group);
    while (sds__strip_next(&cursor, &strip))
        sds__copy_apart(access->out + strip.position, strip.length,
                        bytes + (strip.offset - group->offset), strip.stride, strip.count,
                        strip.length);
}

static void scatter_list(const sds__access *access, const sds__group *group, const uint8_t *bytes)
{
    const sds_piece *pieces = &access->pieces[group->first_piece];
    for (int64_t i = 0; i < group->n_pieces; i++)
        sds__copy_few(access->out + pieces[i].position, bytes + (pieces[i].offset - group->offset),
                      pieces[i].length);
}

void sds__group_scatter(const sds__access *access, const sds__group *group, const uint8_t *bytes)
{
    if (group->n_pieces > 1 && access->runs == NULL) {
        scatter_list(access, group, bytes);
    } else if (group->n_pieces > 1) {
        scatter_regular(access, group, bytes);
    } else if (group->n_pieces == 1) {
        const int64_t position = access->runs != NULL ? group->first_piece * access->runs->run_bytes
                                                      : access->pieces[group->first_piece].position;
        memcpy(access->out + position + group->skip_bytes, bytes, (size_t)group->length);
    }
}
