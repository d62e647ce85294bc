/* The rest of a segment, announced when the first of it is read. Zhang 2009: what was read after it
 * again and again is prefetched with it. */
#include "sds/tiles.h"

/* Of more, a read may go past the page cache, which is not to be filled then. */
#define LONG_BYTES (INT64_C(4) << 20)

static uint64_t bit_of(int32_t segment)
{
    return UINT64_C(1) << segment % 64;
}

int sds_segment_is_due(sds_file *file, const sds_candidate *candidate,
                       const sds_table_dataset *dataset, const sds_tile_piece *piece,
                       const uint64_t announced[])
{
    const int32_t segment = sds_segment_of(&candidate->tiles, piece->place);
    if (__atomic_load_n(&announced[segment / 64], __ATOMIC_RELAXED) & bit_of(segment)) return 0;
    sds_array tile;
    sds_runs runs;
    sds_tile_array(candidate, dataset, piece->place, &tile);
    if (sds_runs_of(&tile, &piece->slab, &runs) != SDS_OK || sds_runs_bytes(&runs) >= LONG_BYTES)
        return 0;
    const sds_runs first = {.first_offset = runs.first_offset, .run_bytes = 1};
    return sds_probe_runs(file, &first) == SDS_CACHE_COLD;
}

void sds_announce_segment(sds_file *file, const sds_candidate *candidate,
                          const sds_table_dataset *dataset, const sds_tile_piece *piece,
                          uint64_t announced[])
{
    const int32_t segment = sds_segment_of(&candidate->tiles, piece->place);
    const uint64_t bit = bit_of(segment);
    if (__atomic_fetch_or(&announced[segment / 64], bit, __ATOMIC_RELAXED) & bit) return;
    sds_extent rest = sds_segment_bytes(candidate, dataset, segment);
    if (rest.length > SDS_ANNOUNCED_BYTES) {
        sds_array tile;
        sds_tile_array(candidate, dataset, piece->place, &tile);
        rest.length -= tile.offset_bytes - rest.offset;
        rest.offset = tile.offset_bytes;
    }
    sds_announce_rest(file, rest.offset, rest.length);
}
