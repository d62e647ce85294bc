/* CRC-32C (Castagnoli), the checksum of every SDS format; in hardware where the CPU has it. */
#ifndef SDS_CHECKSUM_H
#define SDS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Continue crc (0 to begin) over n bytes. */
uint32_t sds_crc32c(uint32_t crc, const void *bytes, size_t n);

#ifdef __cplusplus
}
#endif
#endif
