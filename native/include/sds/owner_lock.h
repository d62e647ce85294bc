/* A lock that knows its owner from the moment it is taken.
 *
 * For state that a program's signal handler may come to while its own thread holds the lock: one
 * that ends the program by exit has HDF5 close files and SDS write its trace. An error-checking
 * mutex tells its owner too, but learns it a moment after it was taken; a handler that interrupts
 * that moment waits for its own thread for ever. One step takes this lock and names its owner.
 *
 * To be held for the time of a few additions. All zero: free. */
#ifndef SDS_OWNER_LOCK_H
#define SDS_OWNER_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

/* Different of threads that live at the same time, and not 0. Without a call, where the compiler
 * knows a way: a library's function lies in lines of the cache that hardly anything else uses. */
static inline uintptr_t sds_this_thread(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)pthread_self();
#endif
#else
    return (uintptr_t)pthread_self();
#endif
}

typedef struct sds_owner_lock {
    uintptr_t owner; /* the thread that holds it; 0: none */
} sds_owner_lock;

static inline void sds_owner_lock_wait(int tries)
{
    const struct timespec moment = {0, 50000};
    if (tries < 64)
        sched_yield();
    else
        nanosleep(&moment, (struct timespec *)0);
}

/* The same as below, where it was not free. */
__attribute__((cold, noinline)) static int sds_owner_lock_await(sds_owner_lock *lock,
                                                                uintptr_t self)
{
    for (int tries = 0;; tries++) {
        uintptr_t owner = 0;
        if (__atomic_compare_exchange_n(&lock->owner, &owner, self, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return 1;
        if (owner == self) return 0;
        sds_owner_lock_wait(tries);
    }
}

/* Return 0 where this very thread holds it already; it is then not taken once more. */
static inline int sds_owner_lock_take(sds_owner_lock *lock)
{
    const uintptr_t self = sds_this_thread();
    uintptr_t owner = 0;
    if (__atomic_compare_exchange_n(&lock->owner, &owner, self, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return 1;
    return sds_owner_lock_await(lock, self);
}

/* The thread that holds it: for that thread to ask. */
static inline uintptr_t sds_owner_lock_owner(const sds_owner_lock *lock)
{
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED);
}

static inline void sds_owner_lock_release(sds_owner_lock *lock)
{
    __atomic_store_n(&lock->owner, (uintptr_t)0, __ATOMIC_RELEASE);
}

#endif
