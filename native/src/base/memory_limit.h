/* How much memory this process may use. Internal. */
#ifndef SDS_MEMORY_LIMIT_H
#define SDS_MEMORY_LIMIT_H

#include <stdint.h>

/* The machine's memory, RLIMIT_RSS, or the smallest limit of the control groups (v1 or v2) that the
 * process is in. Asked once per process. */
int64_t sds__memory_limit_bytes(void);

/* How much of files that reads map may be resident in this process: what SDS_MMAP_BYTES says, else
 * an eighth of that. 0: nothing is to be mapped. Asked once per process. */
int64_t sds__max_mapped_bytes(void);

/* Bytes of files that are mapped and in this process's memory now, as its resident set counts them;
 * -1: not known. */
int64_t sds__resident_file_bytes(void);

#endif
