#include "run_rank.h"

#include "arithmetic.h"

void sds__ranked_of(const sds_runs *runs, sds__ranked *out)
{
    int64_t n_bytes = runs->run_bytes;
    out->runs = runs;
    for (int32_t k = runs->n_levels - 1; k >= 0; k--) {
        out->inner_bytes[k] = n_bytes;
        n_bytes *= runs->level[k].count;
    }
    out->n_bytes = n_bytes;
}

int64_t sds__bytes_below(const sds__ranked *ranked, int64_t offset)
{
    const sds_runs *runs = ranked->runs;
    int64_t rest = offset - runs->first_offset, below = 0;
    if (rest <= 0) return 0;
    for (int32_t k = 0; k < runs->n_levels; k++) {
        const int64_t step =
            sds__least(rest / runs->level[k].stride_bytes, runs->level[k].count - 1);
        below += step * ranked->inner_bytes[k];
        rest -= step * runs->level[k].stride_bytes;
    }
    return below + sds__least(rest, runs->run_bytes);
}

int64_t sds__offset_of(const sds__ranked *ranked, int64_t rank)
{
    const sds_runs *runs = ranked->runs;
    int64_t offset = runs->first_offset;
    for (int32_t k = 0; k < runs->n_levels; k++) {
        offset += rank / ranked->inner_bytes[k] * runs->level[k].stride_bytes;
        rank %= ranked->inner_bytes[k];
    }
    return offset + rank;
}
