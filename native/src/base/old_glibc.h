/* Included in every file: what is built on a new Linux runs with glibc 2.28 as well
 * (manylinux_2_28). These functions have a newer version since; most moved into libc.so.6 with
 * glibc 2.34. Each still has its old one, which older libraries know. */
#ifndef SDS_OLD_GLIBC_H
#define SDS_OLD_GLIBC_H

#include <features.h>

#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__)
/* Sanitizers know the newest alone. */
#elif defined(__x86_64__)
#define SDS__FIRST_GLIBC "GLIBC_2.2.5"
#define SDS__FIRST_DLINFO "GLIBC_2.3.3"
#elif defined(__aarch64__) || (defined(__powerpc64__) && _CALL_ELF == 2)
#define SDS__FIRST_GLIBC "GLIBC_2.17"
#define SDS__FIRST_DLINFO SDS__FIRST_GLIBC
#endif

#ifdef SDS__FIRST_GLIBC
#define SDS__OLD(name) __asm__(".symver " #name ", " #name "@" SDS__FIRST_GLIBC)
SDS__OLD(dladdr);
SDS__OLD(dlclose);
SDS__OLD(dlerror);
__asm__(".symver dlinfo, dlinfo@" SDS__FIRST_DLINFO);
SDS__OLD(dlopen);
SDS__OLD(dlsym);
SDS__OLD(log);
SDS__OLD(pthread_attr_setstacksize);
SDS__OLD(pthread_create);
SDS__OLD(pthread_getspecific);
SDS__OLD(pthread_join);
SDS__OLD(pthread_key_create);
SDS__OLD(pthread_once);
SDS__OLD(pthread_setspecific);
SDS__OLD(pthread_sigmask);
#endif

#endif
