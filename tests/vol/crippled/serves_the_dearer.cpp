// A connector that serves from a replica also where the original is predicted to be faster.
#include "sds/choose.h"

extern "C" int32_t crippled_choose(const sds_layouts *layouts, const sds_hyperslab *slab,
                                   const sds_choose_given *given, sds_read_costs *costs)
{
    const int32_t best = sds_choose(layouts, slab, given, costs);
    return layouts->dataset.n_candidates > 0 ? 0 : best;
}
