#include "plugin_codecs.h"

#include <string.h>

#include "elf_image.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// As they are registered with HDF5.
constexpr int lzf = 32000, lz4 = 32004, bitshuffle = 32008, zstd = 32015;

constexpr const char *names_of_functions[SDS_N_CODECS] = {
#define XX(name, functions) functions,
    SDS_CODEC_MAP(XX)
#undef XX
};

// What comes out of each as `text`, or nothing does that is to be trusted: the functions were found
// by their names alone.
constexpr size_t n_text = 48;
constexpr char text[n_text + 1] = "what is written comes back, what is written, so ";

struct Stream {
    sds_codec codec;
    size_t n;
    const char *bytes;
};
constexpr Stream streams[] = {
    {SDS_CODEC_LZF, 39, "\x1cwhat is written comes back, w\xe0\x05\x1b\x04, so "},
    {SDS_CODEC_LZ4, 54,
     "\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x00\x30\x00\x00\x00\x26\xfb\rwhat is written comes "
     "back, \x1c\x00P, so "},
    {SDS_CODEC_ZSTD, 49,
     "\x28\xb5\x2f\xfd\x20\x30\x45\x01\x00\x14\x02what is written comes back, , so "
     "\x01\x00\x7c\x37\x9d"},
    {SDS_CODEC_BITSHUFFLE_LZ4, 64,
     "\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x20\x00\x00\x00\x00\x30\xf1\x10\x65\x25\x9f\x53\x56"
     "\x62\x41\x43\x53\x13\x34\x64\x09\x79\x0e\x94\x90\x4f\x22\x44\x06\x26\x42\x4c\x49\x1b\x10\x90"
     "\xb4\x21\xff\x01\x00\xc0\x6f\x7f\xdf\xf3\xf6\x67\x00\x00\x00\x00\x00\x00"},
    {SDS_CODEC_BITSHUFFLE_ZSTD, 73,
     "\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x20\x00\x00\x00\x00\x39\x28\xb5\x2f\xfd\x20\x30\x81"
     "\x01\x00\x65\x25\x9f\x53\x56\x62\x41\x43\x53\x13\x34\x64\x09\x79\x0e\x94\x90\x4f\x22\x44\x06"
     "\x26\x42\x4c\x49\x1b\x10\x90\xb4\x21\xff\xff\xff\xff\xff\xff\x6f\x7f\xdf\xf3\xf6\x67\x00\x00"
     "\x00\x00\x00\x00"},
};

bool decodes_right(sds_filter filter)
{
    filter.option[0] = 1; // bytes of an element
    filter.option[1] = 0;
    for (const Stream &stream : streams) {
        if (stream.codec != filter.codec) continue;
        char decoded[2 * n_text];
        size_t n = 0;
        return sds_filter_undo(&filter, nullptr, stream.bytes, stream.n, decoded, sizeof decoded,
                               &n) == SDS_OK &&
               n == n_text && memcmp(decoded, text, n) == 0;
    }
    return false;
}

// Plugins are named after HDF5: libh5zstd.so, libH5Zlz4.so; h5py's LZF is in its module h5z.
bool may_be_plugin(const Image &image)
{
    const char *name = strrchr(image.path, '/');
    return !image.is_program && strcasestr(name ? name : image.path, "h5");
}

void *find_in_image(const void *image, const char *name)
{
    return find_exported(*static_cast<const Image *>(image), name);
}

bool has_openmp(const Image &image)
{
    return is_linked_with(image, "libgomp.") || is_linked_with(image, "libomp.") ||
           is_linked_with(image, "libiomp5.");
}

// An image that has the functions of a codec.
struct Candidate {
    sds_filter filter;
    void *plugin_info; // HDF5 asks this of what it loads as a plugin; nullptr in modules of Python
    bool has_openmp;
};
struct Candidates {
    sds_filter wanted;
    Candidate found[8];
    int n;
};

// Functions of other libraries are not to be called while the loader goes through its list.
bool add_candidate(const Image &image, void *data)
{
    auto &candidates = *static_cast<Candidates *>(data);
    sds_filter filter = candidates.wanted;
    if (!may_be_plugin(image) || !find_functions(filter, find_in_image, &image)) return false;
    candidates.found[candidates.n++] = {filter, find_exported(image, "H5PLget_plugin_info"),
                                        has_openmp(image)};
    return candidates.n == sizeof candidates.found / sizeof *candidates.found;
}

// Whether HDF5 would have taken the image for this filter's plugin.
bool is_plugin_of(const Candidate &candidate, int number)
{
    struct FilterClass { // as HDF5's H5Z_class2_t begins
        int version;
        int number;
    };
    if (number == lzf) return true; // h5py registers what is in its module
    if (!candidate.plugin_info) return false;
    const FilterClass *(*info)() = nullptr;
    memcpy(&info, &candidate.plugin_info, sizeof info);
    const FilterClass *described = info();
    return described && described->version == 1 && described->number == number;
}

// False where none is found, or one starts threads of its own for each block of bitshuffle: then
// HDF5 has fewer of them, for larger pieces.
bool look_for(int number, sds_filter &filter)
{
    Candidates candidates = {filter, {}, 0};
    find_image_with(add_candidate, &candidates);
    bool is_found = false;
    for (int i = candidates.n - 1; i >= 0; i--) {
        const Candidate &candidate = candidates.found[i];
        if (!is_plugin_of(candidate, number)) continue;
        if (candidate.has_openmp) return false;
        filter = candidate.filter;
        is_found = true;
    }
    return is_found && decodes_right(filter);
}

// What was found last of each codec; touched with the lock held.
struct Known {
    sds_filter filter;
    bool is_looked_for;
    bool is_found;
    ImagesSoFar as_of;
};
Known known[SDS_N_CODECS];

Known known_of(sds_codec codec)
{
    const SharedStateLock lock;
    return known[codec];
}

void remember(const Known &found)
{
    const SharedStateLock lock;
    known[found.filter.codec] = found;
}

// Bitshuffle's values: two of its version, bytes of an element, elements of a block, codec.
bool describe(int number, size_t n_values, const unsigned values[], sds_filter &out)
{
    constexpr unsigned with_lz4 = 2, with_zstd = 3;
    if (number == bitshuffle) {
        if (n_values < 5 || values[2] == 0) return false;
        out.codec = values[4] == with_lz4 ? SDS_CODEC_BITSHUFFLE_LZ4 : SDS_CODEC_BITSHUFFLE_ZSTD;
        out.option[0] = values[2];
        out.option[1] = values[3];
        return values[4] == with_lz4 || values[4] == with_zstd;
    }
    out.codec = number == lzf ? SDS_CODEC_LZF : number == lz4 ? SDS_CODEC_LZ4 : SDS_CODEC_ZSTD;
    return number == lzf || number == lz4 || number == zstd;
}

} // namespace

bool find_functions(sds_filter &filter, FindFunction find, const void *where)
{
    const char *names = names_of_functions[filter.codec];
    for (int i = 0; *names; i++) {
        char name[64];
        const size_t length = strcspn(names, " ");
        if (i == SDS_FILTER_FUNCTIONS || length >= sizeof name) return false;
        memcpy(name, names, length);
        name[length] = '\0';
        void *found = find(where, name);
        if (!found) return false;
        memcpy(&filter.function[i], &found, sizeof found);
        names += length + (names[length] == ' ');
    }
    return true;
}

bool find_plugin_codec(int number, size_t n_values, const unsigned values[], sds_filter &out)
{
    sds_filter asked = {};
    if (!describe(number, n_values, values, asked)) return false;
    const ImagesSoFar now = images_so_far();
    Known found = known_of(asked.codec);
    if (!found.is_looked_for || !(found.as_of == now)) {
        found = {asked, true, false, now};
        found.is_found = look_for(number, found.filter);
        remember(found);
    }
    out = found.filter;
    memcpy(out.option, asked.option, sizeof out.option);
    return found.is_found;
}

bool takes_memory(const sds_filter &filter)
{
    return filter.codec == SDS_CODEC_BITSHUFFLE_LZ4 || filter.codec == SDS_CODEC_BITSHUFFLE_ZSTD;
}

} // namespace sds::vol
