/* Threads that help for the length of one read. Internal. */
#ifndef SDS_THREADS_H
#define SDS_THREADS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Start up to n threads, the i-th with the i-th of the arguments, each of that size. Signals
 * are blocked in them, but for those of faults: a program may write-protect the memory that it
 * reads into, and have its handler open it. Returns how many there was room for, each to be joined.
 */
int32_t sds__start_threads(int32_t n, void *(*work)(void *), void *arguments, size_t argument_bytes,
                           pthread_t threads[]);

/* Whether one of the processors that this thread may run on has nothing to do at the moment. Some
 * microseconds; 0 where it cannot be told. */
int sds__has_idle_processor(void);

#endif
