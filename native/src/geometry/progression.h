/* A selection as nested progressions, walked at a cost that does not grow with their lengths.
 * Internal.
 */
#ifndef SDS_PROGRESSION_H
#define SDS_PROGRESSION_H

#include "deadline.h"
#include "disk_map.h"
#include "touched.h"

#define SDS__MAX_LEVELS (2 * SDS_MAX_RANK)

typedef struct sds__progression {
    int64_t first_offset;
    int64_t run_bytes;
    int32_t n_levels;
    sds_level level[SDS__MAX_LEVELS];
    /* After this many steps a level repeats itself on other disks; 0: step through it. */
    int64_t phases[SDS__MAX_LEVELS];
    double cost; /* estimate, in additions of a range to a set */
} sds__progression;

/* The same touched requests in fewer levels: runs closer than a cell are one. */
void sds__progression_init(sds__progression *out, const sds_runs *runs, const sds__disk_map *map);

/* Fill the innermost level: touches at least what it touched before, at less cost. */
void sds__progression_fill(sds__progression *progression, const sds__disk_map *map);

/* Sets that sds__progression_touch needs besides the result: one per level and one more. */
int32_t sds__progression_sets(const sds__progression *progression);

/* Add to touched what the progression touches. Stops when the deadline passes: touched then holds
 * a part that lies before all the rest in the file. */
void sds__progression_touch(const sds__progression *progression, sds__deadline *deadline,
                            sds__touched *touched, sds__touched scratch[]);

#endif
