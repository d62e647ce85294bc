#include "sds/filters.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MOST 5000
static uint8_t in[MOST], out[MOST], expected[MOST];

static void fill(uint64_t *state, uint8_t *bytes, size_t n)
{
    const int kind = (int)random_between(state, 0, 2); /* zeros, ones, anything */
    for (size_t i = 0; i < n; i++)
        bytes[i] = kind == 0 ? 0 : kind == 1 ? 0xFF : (uint8_t)random_u64(state);
}

static void test_unshuffling_puts_bytes_together(void)
{
    uint64_t state = 1;
    for (int round = 0; round < 4000; round++) {
        const size_t element = (size_t)random_between(&state, 1, round % 2 ? 8 : 40);
        const size_t n = (size_t)random_between(&state, 0, MOST);
        const size_t n_elements = n / element;
        for (size_t i = 0; i < n; i++)
            in[i] = (uint8_t)random_u64(&state);
        for (size_t i = 0; i < n_elements; i++)
            for (size_t byte = 0; byte < element; byte++)
                expected[i * element + byte] = in[byte * n_elements + i];
        memcpy(expected + n_elements * element, in + n_elements * element, n % element);
        if (n_elements <= 1) memcpy(expected, in, n);
        memset(out, 0xA5, MOST);
        sds_unshuffle(element, n, in, out);
        CHECK(memcmp(out, expected, n) == 0);
        for (size_t i = n; i < MOST; i++)
            CHECK(out[i] == 0xA5);
    }
}

/* As the format describes it, word by word. */
static uint32_t slow_fletcher32(const uint8_t *bytes, size_t n)
{
    uint32_t sum = 0, sum_of_sums = 0;
    for (size_t i = 0; i < n; i += 2) {
        sum += (uint32_t)bytes[i] << 8 | (i + 1 < n ? bytes[i + 1] : 0);
        sum = (sum & 0xFFFF) + (sum >> 16);
        sum_of_sums += sum;
        sum_of_sums = (sum_of_sums & 0xFFFF) + (sum_of_sums >> 16);
    }
    return sum_of_sums << 16 | sum;
}

static void test_fletcher32_is_that_of_single_words(void)
{
    uint64_t state = 2;
    for (int round = 0; round < 4000; round++) {
        const size_t n = (size_t)random_between(&state, 0, round % 4 ? 64 : MOST);
        fill(&state, in, n);
        if (round % 8 == 0) memset(in, 0xFF, n); /* the greatest sums */
        CHECK(sds_fletcher32(in, n) == slow_fletcher32(in, n));
    }
}

static sds_filter of(sds_codec codec)
{
    sds_filter filter;
    memset(&filter, 0, sizeof filter);
    filter.codec = codec;
    filter.option[0] = 4;
    return filter;
}

static void test_checksums_and_room_are_checked(void)
{
    const sds_filter checksum = of(SDS_CODEC_FLETCHER32), shuffle = of(SDS_CODEC_SHUFFLE);
    size_t produced;
    memset(in, 7, 100);
    const uint32_t sum = sds_fletcher32(in, 96);
    for (int i = 0; i < 4; i++)
        in[96 + i] = (uint8_t)(sum >> 8 * i);
    CHECK(sds_filter_undo(&checksum, NULL, in, 100, out, 96, &produced) == SDS_OK &&
          produced == 96);
    CHECK(sds_filter_undo(&checksum, NULL, in, 100, out, 95, &produced) == SDS_EFORMAT);
    CHECK(sds_filter_undo(&checksum, NULL, in, 99, out, 96, &produced) == SDS_EFORMAT);
    CHECK(sds_filter_undo(&checksum, NULL, in, 3, out, 96, &produced) == SDS_EFORMAT);
    CHECK(sds_filter_undo(&shuffle, NULL, in, 100, out, 99, &produced) == SDS_EFORMAT);
    CHECK(sds_filter_undo(&shuffle, NULL, in, 0, out, 0, &produced) == SDS_OK && produced == 0);
    const sds_filter unknown = of(SDS_N_CODECS);
    CHECK(sds_filter_undo(&unknown, NULL, in, 100, out, 100, &produced) == SDS_EINVAL);
}

/* A function of a library, or NULL. */
static sds_filter_function found(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *address = handle == NULL ? NULL : dlsym(handle, name);
    sds_filter_function function;
    memcpy(&function, &address, sizeof function);
    return function;
}

static sds_filter_function zlib_compress;

/* A stream that was changed in one place, by all that inflate: whoever takes it for good finds the
 * same bytes. */
static void changed_round(const sds_filter inflate[], int n_inflate, uint64_t *state)
{
    typedef int (*compress)(uint8_t *, unsigned long *, const uint8_t *, unsigned long);
    static uint8_t stored[2 * MOST], made_up[2 * MOST];
    const size_t n = (size_t)random_between(state, 1, random_between(state, 1, MOST));
    unsigned long n_stored = sizeof stored;
    size_t before = 0;
    int n_good = 0;
    fill(state, in, n);
    CHECK(((compress)zlib_compress)(stored, &n_stored, in, n) == 0);
    /* Bytes of its own memory, so that reading behind them is seen. */
    uint8_t *at = made_up + sizeof made_up - n_stored;
    memcpy(at, stored, n_stored);
    at[random_between(state, 0, (int64_t)n_stored - 1)] ^=
        (uint8_t)(1 << random_between(state, 0, 7));
    for (int i = 0; i < n_inflate; i++) {
        size_t produced;
        if (sds_filter_undo(&inflate[i], NULL, at, n_stored, out, n, &produced) != SDS_OK) continue;
        CHECK(produced <= n);
        if (n_good++ > 0) CHECK(produced == before && memcmp(out, expected, produced) == 0);
        memcpy(expected, out, produced);
        before = produced;
    }
}

static void deflate_round(const sds_filter *inflate, uint64_t *state)
{
    typedef int (*compress)(uint8_t *, unsigned long *, const uint8_t *, unsigned long);
    static uint8_t stored[2 * MOST];
    const size_t n = (size_t)random_between(state, 1, MOST);
    unsigned long n_stored = sizeof stored;
    size_t produced;
    fill(state, in, n);
    CHECK(((compress)zlib_compress)(stored, &n_stored, in, n) == 0);
    CHECK(sds_filter_undo(inflate, NULL, stored, n_stored, out, n, &produced) == SDS_OK);
    CHECK(produced == n && memcmp(out, in, n) == 0);
    CHECK(sds_filter_undo(inflate, NULL, stored, n_stored, out, n - 1, &produced) == SDS_EFORMAT);
    const size_t cut = (size_t)random_between(state, 0, (int64_t)n_stored - 1);
    CHECK(sds_filter_undo(inflate, NULL, stored, cut, out, n, &produced) == SDS_EFORMAT);
}

static void test_deflate_streams(int64_t n_rounds)
{
    uint64_t state = 3;
    sds_filter inflate[2] = {of(SDS_CODEC_DEFLATE), of(SDS_CODEC_LIBDEFLATE)};
    inflate[0].function[0] = found("libz.so.1", "inflateInit_");
    inflate[0].function[1] = found("libz.so.1", "inflate");
    inflate[0].function[2] = found("libz.so.1", "inflateEnd");
    CHECK(inflate[0].function[0] != NULL);
    zlib_compress = found("libz.so.1", "compress");
    inflate[1].function[0] = found("libdeflate.so.0", "libdeflate_alloc_decompressor");
    inflate[1].function[1] = found("libdeflate.so.0", "libdeflate_zlib_decompress_ex");
    inflate[1].function[2] = found("libdeflate.so.0", "libdeflate_free_decompressor");
    const int n_inflate = inflate[1].function[0] != NULL ? 2 : 1;
    for (int64_t round = 0; round < n_rounds; round++) {
        for (int i = 0; i < n_inflate; i++)
            deflate_round(&inflate[i], &state);
        changed_round(inflate, n_inflate, &state);
    }
}

/* argv[1]: rounds of deflated streams. */
int main(int argc, char *argv[])
{
    test_unshuffling_puts_bytes_together();
    test_fletcher32_is_that_of_single_words();
    test_checksums_and_room_are_checked();
    test_deflate_streams(argc > 1 ? atoll(argv[1]) : 1000);
    return 0;
}
