#include "chunk_filters.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "elf_image.h"
#include "plugin_codecs.h"

namespace sds::vol
{
namespace
{

// As HDF5 numbers them.
constexpr int deflate = 1, shuffle = 2, fletcher32 = 3;
constexpr size_t checksum_bytes = 4;

// Never let go.
struct Codec {
    sds_filter filter;
    bool is_found;
};
Codec known_libdeflate = {}, known_zlib = {};
pthread_once_t looked_for = PTHREAD_ONCE_INIT;

void *find_in_library(const void *library, const char *name)
{
    return dlsym(const_cast<void *>(library), name);
}

// A library may have the name and be another one, and functions of the program may take the place
// of its own: then not even a short stream comes out as it went in.
bool decodes_right(const sds_filter &codec)
{
    static constexpr unsigned char stream[] = {
        0x78, 0xda, 0x2b, 0xcf, 0x48, 0x2c, 0x51, 0xc8, 0x2c, 0x56, 0x28, 0x2f, 0xca,
        0x2c, 0x29, 0x49, 0xcd, 0x53, 0x48, 0xce, 0xcf, 0x4d, 0x2d, 0x56, 0x48, 0x4a,
        0x4c, 0xce, 0xd6, 0x51, 0x28, 0x47, 0x95, 0x03, 0x00, 0x5e, 0x0a, 0x0f, 0xef};
    constexpr char text[] = "what is written comes back, what is written";
    char decoded[2 * sizeof text];
    size_t n = 0;
    return sds_filter_undo(&codec, nullptr, stream, sizeof stream, decoded, sizeof decoded, &n) ==
               SDS_OK &&
           n == sizeof text - 1 && memcmp(decoded, text, n) == 0;
}

void load(Codec &codec, sds_codec which, const char *library)
{
    const int saved_errno = errno;
    codec.filter.codec = which;
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const bool has_functions = loaded && find_functions(codec.filter, find_in_library, loaded);
    if (!has_functions)
        dlerror(); // the program would be told of it, when it asks for errors of its own
    codec.is_found = has_functions && decodes_right(codec.filter);
    errno = saved_errno;
}

bool use(const Codec &codec, sds_filter &out)
{
    out = codec.filter;
    return codec.is_found;
}

// libdeflate takes half the time of zlib, where it is installed.
bool find_inflating(sds_filter &out)
{
    return use(known_libdeflate, out) || use(known_zlib, out);
}

// Whether a replica may have to be decoded: a table has named one in chunks.
bool has_chunked_replicas()
{
    char *path = nullptr;
    if (asprintf(&path, "%s/chunked", config().home) < 0) return false;
    const bool is_there = access(path, F_OK) == 0;
    free(path);
    return is_there;
}

void look_for_codecs()
{
    const int saved_errno = errno;
    const bool of_originals = config().engine != Engine::never;
    if (config().redirect && (of_originals || has_chunked_replicas())) {
        load(known_libdeflate, SDS_CODEC_LIBDEFLATE, "libdeflate.so.0");
        load(known_zlib, SDS_CODEC_DEFLATE, "libz.so.1");
    }
    errno = saved_errno;
}

// Whether the core undoes a filter of HDF5's own; then it is filled in.
bool find_filter(int number, size_t n_values, const unsigned values[], sds_filter &out)
{
    out = {};
    if (number == deflate) return find_inflating(out);
    if (number == shuffle) {
        out.codec = SDS_CODEC_SHUFFLE;
        if (n_values == 1) out.option[0] = values[0];
        return n_values == 1 && values[0] > 0;
    }
    out.codec = SDS_CODEC_FLETCHER32;
    return number == fletcher32;
}

uint32_t little_endian_32(const char *at)
{
    const auto *byte = reinterpret_cast<const unsigned char *>(at);
    return static_cast<uint32_t>(byte[3]) << 24 | static_cast<uint32_t>(byte[2]) << 16 |
           static_cast<uint32_t>(byte[1]) << 8 | byte[0];
}

// libdeflate does not look whether a stream keeps to the smaller window that its header may name.
// Nearly all have the largest.
bool is_for_libdeflate(const char *at, size_t n)
{
    constexpr char largest_window = 0x78;
    return n > 0 && *at == largest_window;
}

bool undo(const sds_filter &filter, DecodingBlock &own, const char *from, size_t n, char *to,
          size_t capacity, size_t &produced)
{
    const sds_filter *chosen = &filter;
    sds_filter other;
    if (filter.codec == SDS_CODEC_LIBDEFLATE && !is_for_libdeflate(from, n)) {
        if (!use(known_zlib, other)) return false;
        chosen = &other;
    }
    void *state = sds_filter_keeps_state(chosen) ? state_of(own, *chosen) : nullptr;
    return sds_filter_undo(chosen, state, from, n, to, capacity, &produced) == SDS_OK;
}

// HDF5 looks among its plugins for a filter that it does not have, and so loads libraries.
bool has_filters(const Functions &hdf5, hid_t dcpl, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned flags = 0, configuration = 0;
        size_t n_values = 0;
        const int number = hdf5.H5Pget_filter2(dcpl, static_cast<unsigned>(i), &flags, &n_values,
                                               nullptr, 0, nullptr, &configuration);
        if (number < 0 || hdf5.H5Zfilter_avail(number) <= 0) return false;
    }
    return true;
}

} // namespace

void find_codecs()
{
    pthread_once(&looked_for, look_for_codecs);
}

bool find_filters(const Functions &hdf5, hid_t dcpl, bool with_plugins, ChunkFilters &out)
{
    const int n = hdf5.H5Pget_nfilters(dcpl);
    int number = -1, n_sizing = 0; // after which the size is not known beforehand
    bool inflates = false;
    out = {};
    out.by_core = n > 0 && n <= max_core_filters;
    for (int i = 0; i < n; i++) {
        constexpr size_t max_values = 8;
        unsigned flags = 0, configuration = 0, values[max_values] = {};
        size_t n_values = max_values;
        number = hdf5.H5Pget_filter2(dcpl, static_cast<unsigned>(i), &flags, &n_values, values, 0,
                                     nullptr, &configuration);
        if (number < 0) return false;
        // Of checksums that others than the last filter make, HDF5 knows what to do.
        if (number == fletcher32 && i != n - 1) out.by_core = false;
        inflates = inflates || number == deflate;
        if (!out.by_core) continue;
        sds_filter &filter = out.filter[out.n++];
        const bool is_plugin = number > fletcher32;
        n_sizing += number == deflate || is_plugin;
        if (is_plugin) {
            out.n_unloaded = images_so_far().n_unloaded;
            out.by_core = with_plugins && hdf5.H5Zfilter_avail(number) > 0 &&
                          find_plugin_codec(number, n_values, values, filter);
            if (out.by_core) out.of_plugins |= uint32_t{1} << filter.codec;
        } else {
            out.by_core = find_filter(number, n_values, values, filter);
        }
        out.takes_memory = out.takes_memory || takes_memory(filter);
    }
    if (n_sizing > 1) out.by_core = false;
    out.has_checksum = number == fletcher32;
    out.decompresses = out.by_core && n_sizing > 0;
    out.is_faster = out.by_core && inflates && known_libdeflate.is_found;
    out.most_places = (n < 3 ? n : 3) + inflates;
    return n >= 0;
}

bool are_loaded(const ChunkFilters &filters)
{
    return filters.of_plugins == 0 || images_so_far().n_unloaded == filters.n_unloaded;
}

const char *find_filters_of_replica(const Functions &hdf5, hid_t dcpl, ChunkFilters &out)
{
    if (!find_filters(hdf5, dcpl, false, out))
        return "the program's HDF5 cannot tell the filters of the replica";
    if (!out.by_core && !has_filters(hdf5, dcpl, hdf5.H5Pget_nfilters(dcpl)))
        return "the program's HDF5 lacks a filter of the replica";
    return out.has_checksum ? nullptr : "the replica's chunks have no checksums";
}

const char *decode_chunk(const ChunkFilters &filters, uint32_t mask, DecodingBlock &own,
                         char *stored, size_t n, char *other, char *last, size_t chunk_bytes)
{
    const int32_t n_others = filters.n - filters.has_checksum;
    const auto capacity = static_cast<size_t>(most_stored_bytes(static_cast<int64_t>(chunk_bytes)));
    if (filters.has_checksum) {
        if (mask >> n_others != 0 || n < checksum_bytes) return nullptr;
        n -= checksum_bytes;
        if (sds_fletcher32(stored, n) != little_endian_32(stored + n)) return nullptr;
    }
    char *at = stored;
    for (int32_t k = n_others - 1; k >= 0; k--) {
        if (mask >> k & 1) continue;
        const uint32_t before = (uint32_t{1} << k) - 1;
        const bool is_last = (~mask & before) == 0;
        char *to = is_last && last ? last : at == stored ? other : stored;
        if (!undo(filters.filter[k], own, at, n, to, is_last ? chunk_bytes : capacity, n))
            return nullptr;
        at = to;
    }
    if (n != chunk_bytes) return nullptr;
    if (!last || at == last) return at;
    memcpy(last, at, n);
    return last;
}

} // namespace sds::vol
