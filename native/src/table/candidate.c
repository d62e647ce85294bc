#include "sds/candidate.h"

#include "sds/tiles.h"

int sds_candidate_holds(const sds_candidate *candidate, const sds_hyperslab *slab)
{
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int64_t begin = candidate->region_start[axis];
        const int64_t last = slab->start[axis] + (slab->count[axis] - 1) * slab->stride[axis] +
                             slab->block[axis] - 1;
        if (slab->start[axis] < begin || last >= begin + candidate->region_extent[axis]) return 0;
    }
    return candidate->tiles.n == 0 || sds_tiles_hold(candidate, slab);
}

int sds_candidate_is_partial(const sds_candidate *candidate, const sds_table_dataset *dataset)
{
    if (candidate->tiles.n > 0) return 1;
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        if (candidate->region_extent[axis] != dataset->extent[axis]) return 1;
    return 0;
}

sds_status sds_candidate_slab(const sds_candidate *candidate, const sds_hyperslab *slab,
                              sds_hyperslab *out)
{
    sds_hyperslab within = *slab;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        within.start[axis] -= candidate->region_start[axis];
    return sds_hyperslab_permute(&within, candidate->order, out);
}

void sds_candidate_array(const sds_candidate *candidate, const sds_table_dataset *dataset,
                         sds_array *out)
{
    *out = (sds_array){
        .rank = dataset->rank,
        .element_bytes = dataset->element_bytes,
        .offset_bytes = candidate->data_offset_bytes,
    };
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        out->extent[axis] = candidate->region_extent[candidate->order[axis]];
}

int64_t sds_candidate_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset)
{
    const int is_of_tiles = candidate->tiles.n > 0;
    const int64_t *shape = is_of_tiles ? candidate->tiles.shape : candidate->region_extent;
    int64_t n_bytes = dataset->element_bytes * (is_of_tiles ? candidate->tiles.n : 1);
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        n_bytes *= shape[axis];
    return n_bytes;
}

int sds_candidate_keeps_order(const sds_candidate *candidate, const int64_t shape[])
{
    int32_t last = -1;
    for (int32_t axis = 0; axis < candidate->rank; axis++) {
        if (shape[axis] == 1) continue;
        if (candidate->order[axis] < last) return 0;
        last = candidate->order[axis];
    }
    return 1;
}
