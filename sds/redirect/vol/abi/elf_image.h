// A program or library as the loader has mapped it, and the symbols that its file tells of it.
//
// dlsym finds what an image exports. A program with HDF5 linked in exports nothing unless it was
// linked with -rdynamic, but most programs keep the table of all their symbols, for debuggers.
#pragma once

#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace sds::vol
{

struct Image {
    uintptr_t bias; // what the loader has added to the addresses in the file
    const ElfW(Phdr) * segments;
    size_t n_segments;
    const char *path; // of the file; good for as long as the image is loaded
    bool is_program;

    // True where the loaded image has n_bytes there, in a segment that may be used as flags (PF_R,
    // PF_X) say.
    bool holds(const void *address, size_t n_bytes, uint32_t flags) const;
};

// The image that this address lies in. False where the loader knows of none. (dladdr, which says
// more, goes through all symbols of the image for it.)
bool find_loaded_image(const void *address, Image &image);
// The same, or a program that is wholly static.
bool find_image(const void *address, Image &image);
// How many images were loaded so far, and how many of them are not any more.
struct ImagesSoFar {
    uint64_t n_loaded;
    uint64_t n_unloaded;

    bool operator==(const ImagesSoFar &other) const
    {
        return n_loaded == other.n_loaded && n_unloaded == other.n_unloaded;
    }
};
ImagesSoFar images_so_far();
// Whether one of the images that are loaded is what is looked for, in the order of the loader's.
bool find_image_with(bool (*is_it)(const Image &image, void *data), void *data);

// The function that a loaded image exports; nullptr where there is none. dlsym, which would load
// nothing either, waits for whoever loads a library.
void *find_exported(const Image &image, const char *name);

// Whether the image was linked with a library whose name begins so.
bool is_linked_with(const Image &image, const char *prefix);

// The functions and variables in the symbol table of an image's file: those of HDF5 alone.
class SymbolTable
{
  public:
    // prefix: what precedes the names in this image.
    SymbolTable(const Image &image, const char *prefix);
    ~SymbolTable();
    SymbolTable(const SymbolTable &) = delete;
    SymbolTable &operator=(const SymbolTable &) = delete;

    // Where it is in memory. nullptr where the table does not name it, names several, or where
    // file and memory differ: then the file is not the one that was loaded.
    void *find(const char *name) const;

  private:
    bool map_file();
    bool is_file_of_image() const;
    bool find_sections();
    void collect(const char *prefix);
    const unsigned char *in_file(uintptr_t address, size_t n_bytes) const;
    template <class T> const T *at(uint64_t offset, uint64_t n) const;

    struct Entry {
        const char *name;
        const ElfW(Sym) * symbol;
    };
    const Image &image_;
    const unsigned char *file_ = nullptr;
    size_t n_bytes_ = 0;
    const ElfW(Sym) *symbols_ = nullptr;
    size_t n_symbols_ = 0;
    const char *names_ = nullptr;
    size_t n_name_bytes_ = 0;
    Entry *entries_ = nullptr;
    size_t n_entries_ = 0;
    size_t prefix_length_ = 0;
};

} // namespace sds::vol
