/* What carries plans out. Internal.
 *
 * Every executor reads an access from a place on, by the plan. A plan assumes that the page cache
 * holds what is read, or that it does not: where it turns out otherwise, an executor stops between
 * two requests, and what is left is planned anew. */
#ifndef SDS_EXEC_H
#define SDS_EXEC_H

#include <stdint.h>

#include "file_handle.h"
#include "pieces.h"
#include "planner.h"
#include "sds/read_engine.h"

/* How far a read has come: all pieces before this one, and the first bytes of it. */
typedef struct sds__place {
    int64_t piece;
    int64_t bytes;
} sds__place;

/* Read from *place on. On success *place is where it stopped: behind the last piece, or before it
 * when the cache is in another state than the plan assumes. What a failed read has written is
 * undefined, and nothing is written once it has returned. Adds to the report's requests and
 * bytes_read. */
typedef sds_status sds__run(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                            sds__place *place, sds_read_report *report);

sds__run sds__run_calls;        /* PREAD, SIEVE, VECTOR */
sds__run sds__run_calls_shared; /* PREAD, SIEVE: by two threads */
sds__run sds__run_mapped;       /* MAPPED */
sds__run sds__run_list;         /* LIST */
sds__run sds__run_direct;       /* DIRECT */

/* Whether a part of what is read, or, of more than a few pieces, of what lies right before them, is
 * in the page cache, as reading past it leaves behind. Costs a request to the device for each of a
 * few places where not. */
int sds__was_read_directly(const sds_file *file, const sds__access *access);

/* Whether an executor looks out for a cache in another state. The strategies that are there to
 * compare with are carried out to the letter. */
static inline int sds__may_stop(const sds_read_plan *plan)
{
    return plan->strategy == SDS_STRATEGY_AUTO;
}

static inline sds__place sds__start_of(const sds__group *group)
{
    const sds__place start = {group->first_piece, group->skip_bytes};
    return start;
}

static inline sds__place sds__end_of(const sds__group *group)
{
    const sds__place end = {group->first_piece, group->skip_bytes + group->length};
    const sds__place behind = {group->first_piece + group->n_pieces, 0};
    return group->n_pieces == 1 ? end : behind;
}

/* Whether two threads may make the requests of a plan, and are worth it where a processor is idle.
 * Each has buffers of its own. */
int sds__may_share_calls(const sds_read_plan *plan, const sds__place *place);

/* Whether everything that a group reads lies before a place. */
static inline int sds__is_before(const sds__group *group, const sds__place *place)
{
    if (group->n_pieces > 1) return group->first_piece + group->n_pieces <= place->piece;
    return group->first_piece < place->piece || (group->first_piece == place->piece &&
                                                 group->skip_bytes + group->length <= place->bytes);
}

/* Where the bytes of a group go as they are: those of a single piece, and of runs that touch.
 * NULL: they have to be picked apart. */
static inline uint8_t *sds__group_target(const sds__access *access, const sds__group *group)
{
    if (access->runs != NULL && group->bytes_useful == group->length)
        return access->out + group->first_piece * access->runs->run_bytes + group->skip_bytes;
    if (access->runs != NULL || group->n_pieces > 1) return NULL;
    return access->out + access->pieces[group->first_piece].position + group->skip_bytes;
}

#endif
