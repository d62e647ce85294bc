/* What one read asks for, and the contiguous ranges of the file that it is read by. Internal.
 *
 * The planner counts the groups, the executors read them: both see the same ones. Chen 2014,
 * Algorithm 2: from the lowest offset up, a piece joins the group before it while the hole between
 * them is not larger than a bound. Here a group is bounded, too:
 *
 * - A piece longer than max_bytes is split over groups of its own.
 * - Of a list, the group is closed before the piece that would make it too long.
 * - Of a regular access, a group that would be too long is cut between equal parts of the access
 *   (rows, planes), into groups as even as that allows. Which groups there are then follows from
 *   the levels alone, and their number needs no walk.
 */
#ifndef SDS_PIECES_H
#define SDS_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"
#include "sds/read_types.h"

#define SDS__MAX_ACCESS_LEVELS (2 * SDS_MAX_RANK)

/* Holes up to max_hole bytes are read along. */
#define SDS__JOIN_NOTHING INT64_C(-1) /* not even what touches */
#define SDS__JOIN_TOUCHING INT64_C(0)
#define SDS__JOIN_ALL INT64_MAX

/* One of two forms. Regular: runs, packed into memory in file order. A list: n pieces, sorted by
 * offset; they may overlap in the file, not in memory. */
typedef struct sds__access {
    const sds_runs *runs; /* NULL: a list */
    size_t n;
    const sds_piece *pieces;
    uint8_t *out;
} sds__access;

/* A contiguous range of the file, and the pieces in it: n_pieces from first_piece on, whole where
 * they are several; a single one may be a part only. */
typedef struct sds__group {
    int64_t offset;
    int64_t length;
    int64_t bytes_useful; /* that are copied to memory; above length only where pieces overlap */
    int64_t first_piece;
    int64_t skip_bytes; /* of the first piece */
    int64_t n_pieces;
} sds__group;

/* SDS_EINVAL: a negative number, levels that overlap, an empty piece, pieces out of order;
 * SDS_EOVERFLOW: an offset, or all bytes together, do not fit. Everything below relies on it. */
sds_status sds__access_check(const sds__access *access);

/* Number of pieces: 0 where nothing is asked for. */
int64_t sds__access_pieces(const sds__access *access);

/* Where in the file a piece begins, and how long it is. */
int64_t sds__piece_offset(const sds__access *access, int64_t piece);

static inline int64_t sds__piece_bytes(const sds__access *access, int64_t piece)
{
    return access->runs != NULL ? access->runs->run_bytes : access->pieces[piece].length;
}

/* One group with everything from the first byte to the last. The access is not empty. */
sds__group sds__access_whole(const sds__access *access);

typedef struct sds__group_cursor {
    const sds__access *access;
    int64_t max_hole;
    int64_t max_bytes;
    int64_t max_pieces;
    int64_t next_piece;
    int64_t part; /* of a piece, or of the unit, that is split */
    /* Of a regular access: a unit repeats over the outer levels and is read in n_parts. */
    int32_t n_levels;
    int32_t done;
    int64_t n_parts;
    int64_t unit_offset;
    int64_t unit_pieces;
    int64_t unit_span;
    int64_t part_count; /* steps of the level that is cut; 0: a piece is cut, or nothing */
    int64_t part_stride;
    int64_t part_span;
    int64_t part_pieces;
    sds_level level[SDS__MAX_ACCESS_LEVELS]; /* those with count > 1, outermost first */
    uint8_t joins[SDS__MAX_ACCESS_LEVELS]; /* the last unit before a step and the first after it */
    int64_t index[SDS__MAX_ACCESS_LEVELS];
} sds__group_cursor;

/* max_hole: SDS__JOIN_... or bytes; max_bytes, max_pieces: positive. */
void sds__group_cursor_init(sds__group_cursor *cursor, const sds__access *access, int64_t max_hole,
                            int64_t max_bytes, int64_t max_pieces);

/* Return 1 and the next group, or 0 at the end. */
int sds__group_next(sds__group_cursor *cursor, sds__group *out);

/* All groups of a walk together. */
typedef struct sds__group_totals {
    int64_t groups;
    int64_t pieces;
    int64_t bytes_useful;
    int64_t bytes_read;
    int64_t longest_bytes;        /* of any group */
    int64_t longest_merged_bytes; /* of those with several pieces, which need a buffer; 0: none */
    int64_t most_pieces;          /* in a group */
} sds__group_totals;

/* Without a walk where the access is regular; else in one pass. */
void sds__group_totals_of(const sds__access *access, int64_t max_hole, int64_t max_bytes,
                          int64_t max_pieces, sds__group_totals *out);

/* Equal pieces at equal distances, which follow each other in memory. */
typedef struct sds__strip {
    int64_t offset; /* of the first */
    int64_t stride; /* from one to the next */
    int64_t count;
    int64_t length;   /* of each */
    int64_t position; /* of the first in memory */
} sds__strip;

typedef struct sds__strip_cursor {
    const sds__access *access;
    int64_t piece;
    int64_t left; /* pieces */
    int64_t skip_bytes;
    int64_t part_bytes;  /* of a single piece; 0: all of it */
    int64_t offset;      /* of the next piece */
    int32_t outer_level; /* number of levels around the innermost one */
    int64_t index[SDS__MAX_ACCESS_LEVELS];
} sds__strip_cursor;

/* Walks the pieces of a group, a strip at a time. */
void sds__strip_cursor_init(sds__strip_cursor *cursor, const sds__access *access,
                            const sds__group *group);

/* Return 1 and the next strip, or 0 at the end. */
int sds__strip_next(sds__strip_cursor *cursor, sds__strip *out);

/* Copy what the group holds from bytes (those of its range in the file) to its places. */
void sds__group_scatter(const sds__access *access, const sds__group *group, const uint8_t *bytes);

#endif
