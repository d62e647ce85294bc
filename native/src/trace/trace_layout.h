/* Blocks of a spool file, shared by its writer and its reader. The format: trace_format.h. */
#ifndef SDS_SRC_TRACE_LAYOUT_H
#define SDS_SRC_TRACE_LAYOUT_H

#include <stdint.h>

#include "bytes.h"
#include "sds/status.h"
#include "sds/trace_format.h"

#define SDS__BLOCK_MAGIC "SDSB"
#define SDS__BLOCK_HEADER_BYTES 16
#define SDS__BLOCK_MAX_BYTES (1 << 20) /* of payload */

typedef enum {
    SDS__BLOCK_PROCESS = 1,
    SDS__BLOCK_DATASET = 2,
    SDS__BLOCK_RECORDS = 3,
    SDS__BLOCK_DROPPED = 4
} sds__block_type;

typedef struct sds__block_header {
    char magic[4];
    uint16_t version;
    uint16_t type;
    uint32_t length_bytes;
    uint32_t crc32c;
} sds__block_header;

_Static_assert(sizeof(sds__block_header) == SDS__BLOCK_HEADER_BYTES, "documented");

/* Checksum of a block: the header up to it, then the payload. */
uint32_t sds__block_crc32c(const sds__block_header *header, const uint8_t *payload);

/* Put a whole block behind what the buffer holds. */
void sds__put_block(sds__buffer *out, sds__block_type type, const uint8_t *payload, size_t n);

/* No record is longer: of 32 axes, with each number as long as numbers get. */
#define SDS__RECORD_BYTES 4096

/* Bits of a record's flags. */
#define SDS__RECORD_KIND 0x0F
#define SDS__RECORD_COLLECTIVE 0x10
#define SDS__RECORD_REPLICA 0x20    /* served_by follows */
#define SDS__RECORD_SAME_SHAPE 0x40 /* rank, stride, count, block, n_elements as before */
#define SDS__RECORD_SAME_OWNER 0x80 /* dataset and thread as before */

/* Takes a record. Of its arrays no more is set than its rank and numbers of loops say. */
typedef void (*sds__record_emit)(void *context, const sds_trace_record *record);

/* Records are coded as differences from the one before in the same block. */
typedef struct sds__record_coder {
    sds_trace_record before;
} sds__record_coder;

void sds__record_coder_init(sds__record_coder *coder);
void sds__put_record(sds__record_coder *coder, sds__buffer *out, const sds_trace_record *record);
/* Sets view->failed where the bytes are no record. */
void sds__take_record(sds__record_coder *coder, sds__view *view, sds_trace_record *record);

void sds__put_process(sds__buffer *out, const sds_trace_process *process);
void sds__put_dataset(sds__buffer *out, uint32_t id, const sds_trace_dataset *dataset);

/* Strings are copied to text, which the caller frees; the struct points into it. */
void sds__take_process(sds__view *view, sds_trace_process *process, char **text);
uint32_t sds__take_dataset(sds__view *view, sds_trace_dataset *dataset, char **text);

/* Bucket of SDS_TRACE_LATENCY_BUCKETS that counts a read. */
static inline int sds__latency_bucket(int64_t elapsed_ns)
{
    if (elapsed_ns < 2) return 0;
    const int bucket = 63 - __builtin_clzll((unsigned long long)elapsed_ns);
    return bucket < SDS_TRACE_LATENCY_BUCKETS ? bucket : SDS_TRACE_LATENCY_BUCKETS - 1;
}

#endif
