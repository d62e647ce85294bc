/* How long processes that read at one time wait in the queues of servers.
 *
 * A closed network of queues: every process fetches, waits, works and fetches again; of each
 * server a disk serves what waits in the order of places (an elevator), and a link sends what is
 * ready at one instant together. Followed until so many fetches have been made; what is left is
 * taken to go on as in the second half of that.
 *
 * For cost models: the rates are fitted to measured times (sds.recommender.queued). It shares no
 * code with the simulator (sds/simulator.h), but rules of clients, disks and links that the
 * simulator follows as well; docs/explanation/models.md says what follows from that. */
#ifndef SDS_QUEUES_H
#define SDS_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds, 0 to 1000. */
typedef struct sds_queue_rates {
    double run_s;       /* of a process, per run */
    double run_byte_s;  /* likewise, per byte of it */
    double trip_s;      /* to a server and back */
    double reply_s;     /* of a server, per reply */
    double sent_byte_s; /* of a server, per byte */
    double first_s;     /* of a disk, before its first read */
    double seek_s;      /* before each that does not go on where the last ended, */
    double reach_s;     /* and besides where that is 1 GiB of the object away; as its root */
    double read_byte_s; /* of a server's disks together, per byte read or passed over */
} sds_queue_rates;

/* How clients make fetches of runs. */
typedef struct sds_queue_client {
    int64_t page_bytes;    /* fetched whole */
    int64_t gap_bytes;     /* runs at most this far apart are near each other */
    int64_t window_bytes;  /* a client reads ahead to the next multiple of this; 0: never */
    int64_t after;         /* so many near runs in a row begin it */
    int64_t end_bytes;     /* of the file, a multiple of pages: nothing is read ahead beyond */
    int64_t message_bytes; /* of an object are asked for at once, at most; a multiple of pages */
    int64_t in_flight;     /* so many messages of a fetch are under way to a server */
} sds_queue_client;

/* Processes whose fetches are the same: runs in levels of strides, the innermost last. */
typedef struct sds_queue_stream {
    int64_t begin_bytes;
    int64_t run_bytes;
    const int64_t *count;        /* of each level */
    const int64_t *stride_bytes; /* likewise */
    uint64_t nodes;              /* a bit for each node on which they are */
} sds_queue_stream;

typedef struct sds_queued {
    double slowest_s;      /* of all; what is left takes as long as the stream with most left */
    double even_s;         /* likewise, were what is left dealt evenly */
    double followed_s;     /* until then everything was followed */
    double followed_share; /* of the runs of all; 1: to the end */
    double least_share;    /* of the stream with most left */
    double disk_s;         /* the busiest disk until then, */
    double link_s;         /* link, */
    double working_s;      /* and process */
    double fetches;
    double fetched_bytes;
    double reads; /* by disks */
    double read_bytes;
    double seeks;
} sds_queued;

/* Follow fetches until max_fetches have been made (four for each stream at least), rows of runs
 * that need none and further messages of a fetch counted as one, or until what servers have read
 * lies in so many places that remembering it takes 64 MiB (96 in between). In all at most 200 MiB
 * are taken, besides half a KiB for each stream and each server.
 * SDS_EINVAL: a number out of range, or stripes, windows, messages or a file that are no multiple
 * of pages; SDS_ENOMEM; SDS_ELIMIT: more than 36 years, more than 2^20 messages under way or ranges
 * of servers asked for, or messages of one instant whose pages lie in more places than have room.
 */
sds_status sds_follow_queues(size_t n_streams, const sds_queue_stream streams[], int32_t n_levels,
                             const sds_striping *striping, const sds_queue_client *client,
                             const sds_queue_rates *rates, int64_t max_fetches, sds_queued *out);

#ifdef __cplusplus
}
#endif
#endif
