#include "sds/io_model.h"

#include <math.h>

#define MB 1e6

void sds_pmd_costs_chen2014(sds_pmd_costs *reads, sds_pmd_costs *writes)
{
    *reads = (sds_pmd_costs){
        .te_s = 0.0003,
        .tt_s_per_byte = 1 / (120 * MB),
        .startup_s = 0.0003,
        .cud_s_per_byte = 1 / (120 * MB),
        .lqdep_s = 75e-6,
    };
    *writes = *reads;
    writes->lqdep_s = 115e-6;
}

void sds_io_parameters_builtin(sds_io_parameters *out)
{
    *out = (sds_io_parameters){
        /* No network: one request at a time, random, 4 KiB; a stream through the page cache. */
        .reads = {.startup_s = 45e-6, .cud_s_per_byte = 1 / (2700 * MB)},
        .writes = {.startup_s = 65e-6, .cud_s_per_byte = 1 / (2000 * MB)},
        .clients = 1,
        .nodes = 1,
        .queued_startup_s = 6.5e-6,
        .queue_setup_s = 20e-6,
        .buffered_s_per_byte = 1 / (2400 * MB),
        .direct_s_per_byte = 1 / (2400 * MB),
        .direct_setup_s = 50e-6,
        .direct_min_bytes = INT64_C(4) << 20,
        .queue_depth = 256,
        .call_s = 0.62e-6,
        .copy_s_per_byte = 1.1e-10,
        .cached_copy_s_per_byte = 0.6e-10,
        .vector_s = 50e-9,
        .hole_s_per_byte = 0.5e-10,
        .pick_s = 1.5e-9,
        .map_s = 40e-6,
        .guard_s = 2e-6,
        .table_s = 1e-6,
        .touch_s = 0.4e-6,
        .load_s = 4e-9,
        .loaded_s_per_byte = 1.05e-10,
    };
}

int sds_io_parameters_are_valid(const sds_io_parameters *of)
{
    const sds_pmd_costs *both[] = {&of->reads, &of->writes};
    for (int i = 0; i < 2; i++) {
        const double costs[] = {both[i]->te_s, both[i]->tt_s_per_byte, both[i]->startup_s,
                                both[i]->cud_s_per_byte, both[i]->lqdep_s};
        for (int k = 0; k < 5; k++)
            if (!(costs[k] >= 0 && isfinite(costs[k]))) return 0;
    }
    const double costs[] = {
        of->queued_startup_s,
        of->queue_setup_s,
        of->buffered_s_per_byte,
        of->direct_s_per_byte,
        of->direct_setup_s,
        of->call_s,
        of->copy_s_per_byte,
        of->cached_copy_s_per_byte,
        of->vector_s,
        of->hole_s_per_byte,
        of->pick_s,
        of->map_s,
        of->guard_s,
        of->table_s,
        of->touch_s,
        of->load_s,
        of->loaded_s_per_byte,
    };
    for (unsigned k = 0; k < sizeof costs / sizeof *costs; k++)
        if (!(costs[k] >= 0 && isfinite(costs[k]))) return 0;
    return of->clients >= 1 && isfinite(of->clients) && of->nodes >= 1 && isfinite(of->nodes) &&
           of->queue_depth >= 1 && of->direct_min_bytes >= 0;
}

/* What is spent on a request whatever its size. */
static double startup_s(const sds_pmd_costs *costs, double clients)
{
    return costs->te_s * clients + clients * costs->startup_s + costs->lqdep_s;
}

static double transfer_s(const sds_pmd_costs *costs, double nodes, double bytes)
{
    return bytes * (costs->tt_s_per_byte + costs->cud_s_per_byte) / nodes;
}

double sds_pmd_time_s(const sds_pmd_costs *costs, double clients, double nodes, double bytes)
{
    return startup_s(costs, clients) + transfer_s(costs, nodes, bytes);
}

double sds_pmd_break_even_bytes(const sds_pmd_costs *costs, double clients, double nodes)
{
    const double per_byte = transfer_s(costs, nodes, 1);
    return per_byte > 0 ? startup_s(costs, clients) / per_byte : INFINITY;
}

int sds_pmd_merges(const sds_pmd_costs *costs, double clients, double nodes, int64_t hole_bytes)
{
    return hole_bytes <= sds_pmd_max_hole(costs, clients, nodes);
}

int64_t sds_pmd_max_hole(const sds_pmd_costs *costs, double clients, double nodes)
{
    const double break_even = sds_pmd_break_even_bytes(costs, clients, nodes);
    if (!(break_even < 0x1p62)) return INT64_MAX;
    /* Less than the break-even, not equal to it: then nothing is gained. */
    const int64_t below = (int64_t)break_even;
    return (double)below < break_even ? below : below - 1;
}

int sds_ratio_rule_sieves(int64_t bytes_useful, int64_t bytes_of_holes)
{
    return bytes_useful / 2 > bytes_of_holes ||
           (bytes_useful / 2 == bytes_of_holes && bytes_useful % 2 != 0);
}
