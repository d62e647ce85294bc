/* Loads from a mapped file that survive what happens to the file. Internal.
 *
 * A load from a mapping raises SIGBUS where the file has been cut short, or the device or the file
 * server fails: the program that asked for a read would be killed. Here such a fault ends the loads
 * and nothing else. Only faults of the thread that loads, in the range it said, are taken; every
 * other SIGBUS goes where it would have gone without us. */
#ifndef SDS_GUARD_H
#define SDS_GUARD_H

#include <stddef.h>

typedef enum sds__loads_end {
    SDS__LOADED,
    SDS__FAULTED,  /* cut off by a fault: what was stored until then stays */
    SDS__UNGUARDED /* not begun: this thread cannot be guarded now */
} sds__loads_end;

/* Call loads(context), which may fault on the n bytes from begin on. It is left in the middle by a
 * fault: it holds no lock, allocates nothing and calls nothing that does. */
sds__loads_end sds__guard_loads(const void *begin, size_t n, void (*loads)(void *context),
                                void *context);

#endif
