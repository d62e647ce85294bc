/* Threads that help for the length of one read. Internal: of the core and the connector. */
#ifndef SDS_THREADS_H
#define SDS_THREADS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Start up to n threads, the i-th with the i-th of the arguments, each of that size. Signals
 * are blocked in them, but for those of faults: a program may write-protect the memory that it
 * reads into, and have its handler open it. Returns how many there was room for, each to be joined.
 */
int32_t sds__start_threads(int32_t n, void *(*work)(void *), void *arguments, size_t argument_bytes,
                           pthread_t threads[]);

/* Processors that this thread may run on, no more than control groups grant. */
int32_t sds__own_processors(void);

/* Processors that this thread may run on and that have nothing to do at the moment: as many at most
 * as it may run on, less the threads that run on the whole machine; with this thread's, no more
 * than control groups grant. Some microseconds; 0 where it cannot be told. */
int32_t sds__idle_processors(void);

#ifdef __cplusplus
}
#endif

#endif
