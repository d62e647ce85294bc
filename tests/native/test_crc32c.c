#include <string.h>

#include "check.h"
#include "crc32c.h"
#include "sds/checksum.h"

int main(void)
{
    CHECK(sds_crc32c(0, "123456789", 9) == 0xE3069283U);
    CHECK(sds__crc32c_portable(0, "123456789", 9) == 0xE3069283U);
    CHECK(sds_crc32c(0, "", 0) == 0);

    static uint8_t bytes[4096];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_u64(&state);
    for (int round = 0; round < 20000; round++) {
        const size_t from = (size_t)random_between(&state, 0, 64);
        const size_t n = (size_t)random_between(&state, 0, (int64_t)(sizeof bytes - from));
        const size_t cut = (size_t)random_between(&state, 0, (int64_t)n);
        const uint32_t whole = sds__crc32c_portable(0, bytes + from, n);
        CHECK(sds__crc32c_portable(sds__crc32c_portable(0, bytes + from, cut), bytes + from + cut,
                                   n - cut) == whole);
        CHECK(sds_crc32c(sds_crc32c(0, bytes + from, cut), bytes + from + cut, n - cut) == whole);
        if (sds__crc32c_has_hardware()) CHECK(sds__crc32c_hardware(0, bytes + from, n) == whole);
    }
    return 0;
}
