/* Streams of codecs, damaged in places, before pages that nobody may touch: whatever comes out
 * is an error, or bytes in the room that was given. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "sds/filters.h"

static const struct {
    const char *codec;
    const char *functions;
} known[] = {
#define XX(name, functions) {#name, functions},
    SDS_CODEC_MAP(XX)
#undef XX
};

static sds_filter find_codec(const char *codec, const char *library, unsigned element_bytes)
{
    sds_filter filter;
    memset(&filter, 0, sizeof filter);
    filter.codec = SDS_N_CODECS;
    filter.option[0] = element_bytes;
    for (int i = 0; i < SDS_N_CODECS; i++)
        if (strcmp(known[i].codec, codec) == 0) filter.codec = (sds_codec)i;
    CHECK(filter.codec != SDS_N_CODECS);
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    char names[256];
    CHECK(loaded != NULL && strlen(known[filter.codec].functions) < sizeof names);
    strcpy(names, known[filter.codec].functions);
    int n = 0;
    for (char *name = strtok(names, " "); name != NULL; name = strtok(NULL, " ")) {
        void *found = dlsym(loaded, name);
        CHECK(found != NULL && n < SDS_FILTER_FUNCTIONS);
        memcpy(&filter.function[n++], &found, sizeof found);
    }
    return filter;
}

/* n bytes right before a page that nobody may touch. */
static uint8_t *before_a_guard(size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (n + page - 1) / page * page;
    uint8_t *mapped =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && mprotect(mapped + whole, page, PROT_NONE) == 0);
    return mapped + whole - n;
}

static void damage(uint8_t *bytes, size_t n, uint64_t *state)
{
    const int64_t n_places = random_between(state, 1, 4);
    for (int64_t i = 0; i < n_places; i++) {
        /* Half of them in the first 32 bytes, where sizes are. */
        const int64_t last = random_between(state, 0, 1) && n > 32 ? 31 : (int64_t)n - 1;
        uint8_t *at = bytes + random_between(state, 0, last);
        static const uint8_t telling[] = {0, 1, 0x7F, 0x80, 0xFF};
        if (random_between(state, 0, 1))
            *at ^= (uint8_t)(1 << random_between(state, 0, 7));
        else
            *at = telling[random_between(state, 0, sizeof telling - 1)];
    }
}

static void undo_damaged(const sds_filter *filter, const uint8_t *stream, size_t n_stream,
                         size_t n_out, int64_t n_rounds)
{
    uint64_t state = 1;
    size_t produced;
    uint8_t *in = before_a_guard(n_stream), *out = before_a_guard(n_out);
    void *own = sds_filter_begin(filter);
    CHECK((own != NULL) == sds_filter_keeps_state(filter));
    for (int64_t round = 0; round < n_rounds; round++) {
        const int64_t cut = round % 4 == 0 ? random_between(&state, 0, (int64_t)n_stream) : 0;
        const size_t n = n_stream - (size_t)cut;
        uint8_t *at = in + cut; /* its end stays where it is */
        memcpy(at, stream, n);
        if (round % 1000 == 0)
            memcpy(at = in, stream, n_stream);
        else if (n > 0)
            damage(at, n, &state);
        const size_t n_at = round % 1000 == 0 ? n_stream : n;
        const size_t room =
            round % 8 == 1 ? (size_t)random_between(&state, 0, (int64_t)n_out) : n_out;
        const sds_status status =
            sds_filter_undo(filter, own, at, n_at, out + n_out - room, room, &produced);
        CHECK(produced <= room);
        /* What is not damaged comes out still. */
        if (round % 1000 == 0) CHECK(status == SDS_OK && produced == n_out);
    }
    sds_filter_end(filter, own);
}

static size_t read_all(const char *path, uint8_t **bytes)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const long n = ftell(file);
    CHECK(n > 0 && fseek(file, 0, SEEK_SET) == 0);
    *bytes = malloc((size_t)n);
    CHECK(*bytes != NULL && fread(*bytes, 1, (size_t)n, file) == (size_t)n);
    (void)fclose(file);
    return (size_t)n;
}

static void test_deflate(int64_t n_rounds)
{
    typedef int (*compress)(uint8_t *, unsigned long *, const uint8_t *, unsigned long);
    static uint8_t text[20000], stored[30000];
    unsigned long n = sizeof stored;
    void *found = dlsym(dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL), "compress");
    compress function;
    memcpy(&function, &found, sizeof found);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * i / 97 % 11);
    CHECK(found != NULL && function(stored, &n, text, sizeof text) == 0);
    const sds_filter filter = find_codec("DEFLATE", "libz.so.1", 4);
    undo_damaged(&filter, stored, n, sizeof text, n_rounds);
}

/* argv: rounds; or those, and a codec, its library, a file with a stream, bytes of an element and
 * of all. */
int main(int argc, char *argv[])
{
    const int64_t n_rounds = argc > 1 ? atoll(argv[1]) : 2000;
    if (argc < 7) {
        test_deflate(n_rounds);
        return 0;
    }
    uint8_t *stream;
    const size_t n = read_all(argv[4], &stream);
    const sds_filter filter = find_codec(argv[2], argv[3], (unsigned)atoi(argv[5]));
    undo_damaged(&filter, stream, n, (size_t)atoll(argv[6]), n_rounds);
    free(stream);
    return 0;
}
