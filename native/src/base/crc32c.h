/* The two implementations behind sds_crc32c, for the test that they agree. */
#ifndef SDS_SRC_CRC32C_H
#define SDS_SRC_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t sds__crc32c_portable(uint32_t crc, const void *bytes, size_t n);

/* Only where sds__crc32c_has_hardware() says so. */
int sds__crc32c_has_hardware(void);
uint32_t sds__crc32c_hardware(uint32_t crc, const void *bytes, size_t n);

#endif
