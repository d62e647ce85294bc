/* Whether the page cache holds what is going to be read. Internal. */
#ifndef SDS_CACHE_PROBE_H
#define SDS_CACHE_PROBE_H

#include "exec.h"

/* Looks at a few places spread over what is left of a read: a microsecond or two where they are
 * cached, one call where the first is not. WARM: all of them are. UNKNOWN: the file system cannot
 * tell. */
sds_cache sds__probe_access(const sds_file *file, const sds__access *access,
                            const sds__place *place);

/* At fewer: of a range where everything was cached a while ago. */
sds_cache sds__probe_again(const sds_file *file, const sds__access *access,
                           const sds__place *place);

/* The same of one byte of the file. */
sds_cache sds__probe_byte(const sds_file *file, int64_t offset);

/* Bytes that the page cache can take without pressing on programs. */
int64_t sds__cache_room_bytes(void);

#endif
