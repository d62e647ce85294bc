#include "progression.h"

#include "arithmetic.h"

/* Decide per level whether stepping or repeating is cheaper, innermost first. */
static void choose_phases(sds__progression *progression, const sds__disk_map *map)
{
    const double join = (double)sds__touched_lines(map) / 4 + 1;
    const int64_t lanes = map->n_lanes < 16 ? map->n_lanes : 16;
    double cost =
        (double)sds__disk_map_ranges(map, progression->run_bytes) * (1 + (double)lanes / 4);
    for (int32_t k = progression->n_levels - 1; k >= 0; k--) {
        const sds_level *level = &progression->level[k];
        const int64_t phases = map->symmetry_bytes / sds__greatest_common_divisor(
                                                         map->symmetry_bytes, level->stride_bytes);
        const double stepping = (double)level->count * cost;
        progression->phases[k] = 0;
        if (phases <= level->count / 2) {
            double doublings = 2;
            for (int64_t n = level->count / phases; n > 1; n /= 2)
                doublings += 2;
            const double repeating =
                (double)(phases + level->count % phases) * cost + doublings * join;
            if (repeating < stepping) {
                progression->phases[k] = phases;
                cost = repeating;
                continue;
            }
        }
        cost = stepping;
    }
    progression->cost = cost;
}

static void fill_innermost(sds__progression *progression)
{
    const sds_level *level = &progression->level[--progression->n_levels];
    progression->run_bytes += (level->count - 1) * level->stride_bytes;
}

void sds__progression_init(sds__progression *out, const sds_runs *runs, const sds__disk_map *map)
{
    out->first_offset = runs->first_offset;
    out->run_bytes = runs->run_bytes;
    out->n_levels = runs->n_levels;
    for (int32_t k = 0; k < runs->n_levels; k++)
        out->level[k] = runs->level[k];
    /* Filling a hole from which neither side is a whole cell away touches no other request. */
    while (out->n_levels > 0 &&
           out->level[out->n_levels - 1].stride_bytes - out->run_bytes < map->cell_bytes)
        fill_innermost(out);
    choose_phases(out, map);
}

void sds__progression_fill(sds__progression *progression, const sds__disk_map *map)
{
    fill_innermost(progression);
    choose_phases(progression, map);
}

int32_t sds__progression_sets(const sds__progression *progression)
{
    return progression->n_levels + 1;
}

typedef struct walk {
    const sds__progression *progression;
    sds__deadline *deadline;
    sds__touched *scratch; /* one per level, then the one that doubling copies to */
} walk;

/* Add unit, then unit moved by every, 2 * every ... times - 1 of them. Spoils unit. */
static void add_repeated(walk *at, sds__touched *touched, sds__touched *unit, int64_t times,
                         int64_t every)
{
    sds__touched *copy = &at->scratch[at->progression->n_levels];
    int64_t moved = 0;
    for (;;) {
        if (times & 1) {
            sds__touched_join(touched, unit, moved);
            moved += every;
        }
        times /= 2;
        if (times == 0) return;
        sds__touched_copy(copy, unit);
        sds__touched_join(unit, copy, every);
        every *= 2;
    }
}

static void touch_level(walk *at, int32_t k, int64_t offset, sds__touched *touched)
{
    if (k == at->progression->n_levels) {
        sds__touched_add(touched, offset, offset + at->progression->run_bytes);
        sds__deadline_step(at->deadline);
        return;
    }
    const sds_level *level = &at->progression->level[k];
    const int64_t phases = at->progression->phases[k];
    int64_t i = 0;
    if (phases > 0) {
        sds__touched *unit = &at->scratch[k];
        sds__touched_clear(unit);
        for (; i < phases && !at->deadline->passed; i++)
            touch_level(at, k + 1, offset + i * level->stride_bytes, unit);
        if (at->deadline->passed) {
            sds__touched_join(touched, unit, 0);
            return;
        }
        add_repeated(at, touched, unit, level->count / phases, phases * level->stride_bytes);
        i = level->count - level->count % phases;
    }
    for (; i < level->count && !at->deadline->passed; i++)
        touch_level(at, k + 1, offset + i * level->stride_bytes, touched);
}

void sds__progression_touch(const sds__progression *progression, sds__deadline *deadline,
                            sds__touched *touched, sds__touched scratch[])
{
    walk at = {progression, deadline, scratch};
    touch_level(&at, 0, progression->first_offset, touched);
}
