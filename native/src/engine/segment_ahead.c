/* What follows in a segment, announced when a piece of it is not cached. Zhang 2009: what was read
 * after it again and again is prefetched with it. A little at a time: to announce a MiB takes a
 * read 0.25 ms, and where the device has much to do, all of a segment would take it much longer. */
#include "arithmetic.h"
#include "sds/tiles.h"

/* Of more, a read may go past the page cache, which is not to be filled then. */
#define LONG_BYTES (INT64_C(4) << 20)

#define STEP_BYTES (INT64_C(1) << 20)

/* Bytes that are announced at once: of the tile itself and of the next at least. */
static int64_t step_of(int64_t tile_bytes)
{
    return sds__least(sds__greatest(STEP_BYTES, 2 * tile_bytes), SDS_ANNOUNCED_BYTES);
}

static int is_cold(sds_file *file, int64_t offset)
{
    const sds_runs byte = {.first_offset = offset, .run_bytes = 1};
    return sds_probe_runs(file, &byte) == SDS_CACHE_COLD;
}

/* From the first byte of a piece to its last; nothing where it is long, which the engine reads with
 * several requests at a time anyway. */
static sds_extent span_of(const sds_candidate *candidate, const sds_table_dataset *dataset,
                          const sds_tile_piece *piece)
{
    sds_array tile;
    sds_runs runs;
    sds_tile_array(candidate, dataset, piece->place, &tile);
    if (sds_runs_of(&tile, &piece->slab, &runs) != SDS_OK) return (sds_extent){0, 0};
    const int64_t n = sds_runs_span(&runs);
    return (sds_extent){runs.first_offset, n > STEP_BYTES ? 0 : n};
}

void sds_announce_pieces(sds_file *file, const sds_candidate *candidate,
                         const sds_table_dataset *dataset, const sds_hyperslab *slab)
{
    sds_tile_walk walk;
    sds_tile_piece piece;
    int64_t left = SDS_ANNOUNCED_BYTES;
    sds_tile_walk_init(&walk, candidate, slab);
    for (int64_t n = 0; left > 0 && sds_tile_walk_next(&walk, &piece); n++) {
        if (piece.place < 0 || (n == 0 && walk.done)) return;
        const sds_extent span = span_of(candidate, dataset, &piece);
        if (n == 0 && !is_cold(file, span.offset)) return;
        sds_announce_rest(file, span.offset, sds__least(span.length, left));
        left -= span.length;
    }
}

int sds_segment_is_due(sds_file *file, const sds_candidate *candidate,
                       const sds_table_dataset *dataset, const sds_tile_piece *piece,
                       const uint8_t announced[])
{
    const uint8_t n = __atomic_load_n(&announced[sds_segment_of(&candidate->tiles, piece->place)],
                                      __ATOMIC_RELAXED);
    const sds_extent tile = sds_tile_bytes(candidate, dataset, piece->place);
    if ((n + 1) * step_of(tile.length) > SDS_ANNOUNCED_BYTES) return 0;
    sds_array array;
    sds_runs runs;
    sds_tile_array(candidate, dataset, piece->place, &array);
    if (sds_runs_of(&array, &piece->slab, &runs) != SDS_OK || sds_runs_bytes(&runs) >= LONG_BYTES)
        return 0;
    return is_cold(file, runs.first_offset);
}

void sds_announce_segment(sds_file *file, const sds_candidate *candidate,
                          const sds_table_dataset *dataset, const sds_tile_piece *piece,
                          uint8_t announced[])
{
    const int32_t segment = sds_segment_of(&candidate->tiles, piece->place);
    const sds_extent tile = sds_tile_bytes(candidate, dataset, piece->place);
    const sds_extent whole = sds_segment_bytes(candidate, dataset, segment);
    const int64_t n = sds__least(step_of(tile.length), whole.length);
    const int64_t to_end = sds__least(n, whole.offset + whole.length - tile.offset);
    __atomic_fetch_add(&announced[segment], 1, __ATOMIC_RELAXED);
    sds_announce_rest(file, tile.offset, to_end);
    sds_announce_rest(file, whole.offset, n - to_end); /* a group is read in turn */
}
