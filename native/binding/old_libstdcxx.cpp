// libstdc++, linked statically, refers to two functions of glibc by their newest versions, which
// are of 2.34. Here they are by their first ones, as native/src/base/old_glibc.h has others.
#include <pthread.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__) || (defined(__powerpc64__) && _CALL_ELF == 2)
#define FIRST_GLIBC "GLIBC_2.17"
#endif
#endif

#ifdef FIRST_GLIBC
__asm__(".symver sds_first_once, pthread_once@" FIRST_GLIBC);
__asm__(".symver sds_first_key_create, pthread_key_create@" FIRST_GLIBC);

extern "C" {
int sds_first_once(pthread_once_t *control, void (*routine)());
int sds_first_key_create(pthread_key_t *key, void (*destructor)(void *));

int pthread_once(pthread_once_t *control, void (*routine)())
{
    return sds_first_once(control, routine);
}

int __pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    return sds_first_key_create(key, destructor);
}
}
#endif
