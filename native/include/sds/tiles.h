/* Reads from a replica of segments: which tiles they touch, and what they take of each. */
#ifndef SDS_TILES_H
#define SDS_TILES_H

#include <stdint.h>

#include "sds/geometry.h"
#include "sds/read_engine.h"
#include "sds/table_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A read that touches more is not served from tiles. */
#define SDS_MAX_TILES_OF_READ (1 << 10)

/* How many tiles a selection inside the source's extent touches; 0 where nothing is selected,
 * SDS_MAX_TILES_OF_READ + 1 for all that are more. */
int64_t sds_tiles_touched(const sds_tiles *tiles, const sds_hyperslab *slab);

/* Whether a selection inside the source's extent lies in tiles that are held, few enough. */
int sds_tiles_hold(const sds_candidate *candidate, const sds_hyperslab *slab);

/* What a read takes of one tile, as far as it is a regular selection: a tile's edge may cut
 * blocks, and then there are several pieces in it. */
typedef struct sds_tile_piece {
    int32_t place;            /* of the tile in the replica; -1: it holds none such */
    sds_hyperslab slab;       /* of the tile, in the axes of the replica */
    int64_t at[SDS_MAX_RANK]; /* first index in the selection's shape, in the axes of the source */
    int64_t shape[SDS_MAX_RANK]; /* indices of the selection, in the axes of the source */
} sds_tile_piece;

/* Walks the pieces of a read, each once, the last axis of the source fastest. */
typedef struct sds_tile_walk {
    const sds_candidate *candidate;
    int64_t grid[SDS_MAX_RANK];  /* tiles of the source per axis */
    sds_hyperslab slab;          /* what is read of the source */
    int64_t at[SDS_MAX_RANK];    /* of the next piece */
    int64_t taken[SDS_MAX_RANK]; /* its shape */
    int64_t tile[SDS_MAX_RANK];  /* that it lies in, per axis */
    sds_hyperslab part;          /* what it takes of that tile, in the axes of the source */
    int32_t known;               /* where its number was found, for the one after it */
    int32_t done;
} sds_tile_walk;

/* slab lies inside the extent; SDS_MAX_TILES_OF_READ does not bound a walk. */
void sds_tile_walk_init(sds_tile_walk *walk, const sds_candidate *candidate,
                        const sds_hyperslab *slab);

/* Return 1 and the next piece, or 0 at the end. */
int sds_tile_walk_next(sds_tile_walk *walk, sds_tile_piece *out);

/* How many pieces a read has that touches at most SDS_MAX_TILES_OF_READ tiles, and one that is on
 * each axis as long as any (place -1; NULL: not wanted). Costs a step at most for each piece of
 * each axis alone. */
int64_t sds_tile_pieces(const sds_candidate *candidate, const sds_hyperslab *slab,
                        sds_tile_piece *longest);

/* What a read of n pieces costs of one of them, or of the bytes around it, as a read of its own;
 * negative: nobody knows. */
typedef double sds_piece_cost(void *context, const sds_array *tile, const sds_hyperslab *slab,
                              int64_t n);

/* What all pieces of a read cost that the candidate holds, as if they were read one after the
 * other: no less than they take together. What of each is start_s, as any read takes, is paid once;
 * of a tile the engine reads the runs of a piece, or all bytes around them, whichever
 * costs less. Bounded work: of more than SDS_MAX_COUNTED_PIECES each counts as one that is as long
 * as the longest on each axis. Negative: one of them is. */
#define SDS_MAX_COUNTED_PIECES 8
double sds_tiles_cost(const sds_candidate *candidate, const sds_table_dataset *dataset,
                      const sds_hyperslab *slab, double start_s, sds_piece_cost *of_one,
                      void *context);

/* The array that a tile is, in the axes of the replica. */
void sds_tile_array(const sds_candidate *candidate, const sds_table_dataset *dataset, int32_t place,
                    sds_array *out);

/* Where its bytes lie in the replica's file. */
sds_extent sds_tile_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset,
                          int32_t place);

/* The segment in which a tile lies. */
int32_t sds_segment_of(const sds_tiles *tiles, int32_t place);

/* Where the bytes of a segment lie in the replica's file. */
sds_extent sds_segment_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset,
                             int32_t segment);

/* Have the kernel begin to read the pieces of a read that is about to be made, where the cache does
 * not hold the first of several: the device works on all of them at a time. Only a hint, for
 * SDS_ANNOUNCED_BYTES at most. */
void sds_announce_pieces(sds_file *file, const sds_candidate *candidate,
                         const sds_table_dataset *dataset, const sds_hyperslab *slab);

/* Read ahead in a segment: where the cache did not hold a piece of it, what follows is expected to
 * be asked for next, and after the last piece the first. A MiB at least, and of each segment
 * SDS_ANNOUNCED_BYTES at most. announced: how often that was done for each segment, zeros at first;
 * threads may share it. Around the read of a piece: */

/* Whether that is to be done when the piece was read: not for one so long that it may be read past
 * the page cache. Looks at one byte. */
int sds_segment_is_due(sds_file *file, const sds_candidate *candidate,
                       const sds_table_dataset *dataset, const sds_tile_piece *piece,
                       const uint8_t announced[]);

void sds_announce_segment(sds_file *file, const sds_candidate *candidate,
                          const sds_table_dataset *dataset, const sds_tile_piece *piece,
                          uint8_t announced[]);

#ifdef __cplusplus
}
#endif
#endif
