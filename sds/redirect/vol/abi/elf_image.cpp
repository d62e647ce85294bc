#include "elf_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sds::vol
{
namespace
{

constexpr const char *program_path = "/proc/self/exe";

Image image_of(const dl_phdr_info &info)
{
    // The loader gives the program itself no name.
    const bool is_program = !info.dlpi_name || !*info.dlpi_name;
    return {info.dlpi_addr, info.dlpi_phdr, info.dlpi_phnum,
            is_program ? program_path : info.dlpi_name, is_program};
}

struct Search {
    const void *address;
    Image *found;
};

bool holds_address(const Image &image, void *data)
{
    const auto &search = *static_cast<Search *>(data);
    if (!image.holds(search.address, 1, 0)) return false;
    *search.found = image;
    return true;
}

int count_images(dl_phdr_info *info, size_t, void *data)
{
    *static_cast<ImagesSoFar *>(data) = {info->dlpi_adds, info->dlpi_subs};
    return 1; // each image tells the same
}

struct Question {
    bool (*is_it)(const Image &image, void *data);
    void *data;
};

int ask(dl_phdr_info *info, size_t, void *data)
{
    const auto &question = *static_cast<Question *>(data);
    return question.is_it(image_of(*info), question.data);
}

// Of the GNU hash section, which linkers have written by default since 2006.
struct HashTable {
    uint32_t n_buckets;
    uint32_t first_symbol; // that it lists
    uint32_t n_bloom;
    uint32_t bloom_shift;
    ElfW(Addr) bloom[1]; // of n_bloom; then the buckets, then the hashes of the symbols
};

uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
}

// The dynamic section, which ends with DT_NULL; nullptr where there is none.
const ElfW(Dyn) * dynamic_section(const Image &image)
{
    for (size_t i = 0; i < image.n_segments; i++)
        if (image.segments[i].p_type == PT_DYNAMIC)
            return reinterpret_cast<const ElfW(Dyn) *>(image.bias + image.segments[i].p_vaddr);
    return nullptr;
}

// What it says of the image's symbols.
struct Exports {
    const HashTable *hashes;
    const ElfW(Sym) * symbols;
    const char *names;
};

Exports exports_of(const Image &image)
{
    Exports found = {};
    const ElfW(Dyn) *entry = dynamic_section(image);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        // glibc has put addresses in memory in the place of those in the file, but not in all.
        const void *at = reinterpret_cast<const void *>(entry->d_un.d_ptr);
        if (!image.holds(at, 1, PF_R))
            at = reinterpret_cast<const void *>(image.bias + entry->d_un.d_ptr);
        if (!image.holds(at, 1, PF_R)) continue;
        if (entry->d_tag == DT_GNU_HASH) found.hashes = static_cast<const HashTable *>(at);
        if (entry->d_tag == DT_SYMTAB) found.symbols = static_cast<const ElfW(Sym) *>(at);
        if (entry->d_tag == DT_STRTAB) found.names = static_cast<const char *>(at);
    }
    return found;
}

// The program where the loader knows nothing of it: one that is wholly static has a C library of
// its own, and what it loads has another.
bool find_static_program(const void *address, Image &image)
{
    Dl_info unknown;
    if (dladdr(address, &unknown)) return false;
    // What the kernel has told the program is at the end of its stack; of that, the C library here
    // knows nothing either.
    const int fd = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ElfW(auxv_t) entries[64] = {};
    const ssize_t n_read = read(fd, entries, sizeof entries);
    close(fd);
    uintptr_t segments = 0, entry = 0;
    image = {0, nullptr, 0, program_path, true};
    for (ssize_t i = 0; i < n_read / static_cast<ssize_t>(sizeof *entries); i++) {
        if (entries[i].a_type == AT_PHDR) segments = entries[i].a_un.a_val;
        if (entries[i].a_type == AT_PHNUM) image.n_segments = entries[i].a_un.a_val;
        if (entries[i].a_type == AT_ENTRY) entry = entries[i].a_un.a_val;
    }
    if (!segments) return false;
    // Linkers place the table of segments right behind the header.
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(segments - sizeof(ElfW(Ehdr)));
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    image.segments = reinterpret_cast<const ElfW(Phdr) *>(segments);
    image.bias = entry - header->e_entry;
    return image.holds(address, 1, PF_X);
}

int compare_names(const void *left, const void *right)
{
    // Both begin with the name.
    return strcmp(*static_cast<const char *const *>(left),
                  *static_cast<const char *const *>(right));
}

} // namespace

bool Image::holds(const void *address, size_t n_bytes, uint32_t flags) const
{
    const uintptr_t wanted = reinterpret_cast<uintptr_t>(address) - bias;
    for (size_t i = 0; i < n_segments; i++) {
        const ElfW(Phdr) &segment = segments[i];
        if (segment.p_type == PT_LOAD && (segment.p_flags & flags) == flags &&
            wanted >= segment.p_vaddr && n_bytes <= segment.p_memsz &&
            wanted - segment.p_vaddr <= segment.p_memsz - n_bytes)
            return true;
    }
    return false;
}

ImagesSoFar images_so_far()
{
    ImagesSoFar found = {};
    dl_iterate_phdr(count_images, &found);
    return found;
}

bool find_image_with(bool (*is_it)(const Image &image, void *data), void *data)
{
    Question question = {is_it, data};
    return dl_iterate_phdr(ask, &question) == 1;
}

bool find_loaded_image(const void *address, Image &image)
{
    Search search = {address, &image};
    return find_image_with(holds_address, &search);
}

void *find_exported(const Image &image, const char *name)
{
    constexpr uint32_t word_bits = 8 * sizeof(ElfW(Addr));
    const Exports exports = exports_of(image);
    const HashTable *table = exports.hashes;
    if (!table || !exports.symbols || !exports.names || table->n_buckets == 0 ||
        table->n_bloom == 0 || table->bloom_shift >= 32)
        return nullptr;
    const uint32_t hash = hash_of(name);
    const ElfW(Addr) word = table->bloom[hash / word_bits % table->n_bloom];
    if (!(word >> hash % word_bits & word >> (hash >> table->bloom_shift) % word_bits & 1))
        return nullptr;
    const auto *buckets = reinterpret_cast<const uint32_t *>(table->bloom + table->n_bloom);
    const uint32_t *hashes = buckets + table->n_buckets;
    uint32_t i = buckets[hash % table->n_buckets];
    if (i < table->first_symbol) return nullptr;
    for (;; i++) {
        const uint32_t other = hashes[i - table->first_symbol];
        const ElfW(Sym) &symbol = exports.symbols[i];
        if ((other | 1) == (hash | 1) && strcmp(exports.names + symbol.st_name, name) == 0) {
            void *address = reinterpret_cast<void *>(image.bias + symbol.st_value);
            const bool is_function =
                ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
            return is_function && image.holds(address, 1, PF_X) ? address : nullptr;
        }
        if (other & 1) return nullptr; // the last one of the bucket
    }
}

bool is_linked_with(const Image &image, const char *prefix)
{
    const char *names = exports_of(image).names;
    const ElfW(Dyn) *entry = dynamic_section(image);
    for (; entry && names && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_NEEDED &&
            strncmp(names + entry->d_un.d_val, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

bool find_image(const void *address, Image &image)
{
    return find_loaded_image(address, image) || find_static_program(address, image);
}

SymbolTable::SymbolTable(const Image &image, const char *prefix) : image_(image)
{
    if (map_file() && is_file_of_image() && find_sections()) collect(prefix);
}

SymbolTable::~SymbolTable()
{
    free(entries_);
    if (file_) munmap(const_cast<unsigned char *>(file_), n_bytes_);
}

bool SymbolTable::map_file()
{
    const int fd = open(image_.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat found;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0) {
        n_bytes_ = static_cast<size_t>(found.st_size);
        void *mapped = mmap(nullptr, n_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped != MAP_FAILED) file_ = static_cast<const unsigned char *>(mapped);
    }
    close(fd);
    return file_;
}

// n objects at an offset of the file; nullptr where it does not hold them.
template <class T> const T *SymbolTable::at(uint64_t offset, uint64_t n) const
{
    if (offset % alignof(T) || offset > n_bytes_ || n > (n_bytes_ - offset) / sizeof(T))
        return nullptr;
    return reinterpret_cast<const T *>(file_ + offset);
}

// The file may have been replaced since it was loaded. Its segments must be those in memory; find
// compares the code besides.
bool SymbolTable::is_file_of_image() const
{
    const auto *header = at<ElfW(Ehdr)>(0, 1);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        header->e_phentsize != sizeof(ElfW(Phdr)) || header->e_phnum != image_.n_segments)
        return false;
    const auto *segments = at<ElfW(Phdr)>(header->e_phoff, header->e_phnum);
    return segments && memcmp(segments, image_.segments, image_.n_segments * sizeof *segments) == 0;
}

bool SymbolTable::find_sections()
{
    const auto *header = at<ElfW(Ehdr)>(0, 1);
    const auto *sections = at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
    if (!sections || header->e_shentsize != sizeof *sections) return false;
    for (size_t i = 0; i < header->e_shnum; i++) {
        const ElfW(Shdr) &section = sections[i];
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum) continue;
        const ElfW(Shdr) &names = sections[section.sh_link];
        n_symbols_ = section.sh_size / sizeof(ElfW(Sym));
        symbols_ = at<ElfW(Sym)>(section.sh_offset, n_symbols_);
        n_name_bytes_ = names.sh_size;
        names_ = at<char>(names.sh_offset, n_name_bytes_);
        // Every name ends within the section.
        return symbols_ && names_ && n_name_bytes_ && names_[n_name_bytes_ - 1] == '\0';
    }
    return false;
}

void SymbolTable::collect(const char *prefix)
{
    prefix_length_ = strlen(prefix);
    for (int pass = 0; pass < 2; pass++) { // count, then keep
        size_t n = 0;
        for (size_t i = 0; i < n_symbols_; i++) {
            const ElfW(Sym) &symbol = symbols_[i];
            const int type = ELF64_ST_TYPE(symbol.st_info);
            if ((type != STT_FUNC && type != STT_OBJECT) || symbol.st_shndx == SHN_UNDEF ||
                symbol.st_name >= n_name_bytes_)
                continue;
            const char *name = names_ + symbol.st_name;
            if (strncmp(name, prefix, prefix_length_) != 0) continue;
            name += prefix_length_;
            if (name[0] != 'H' || name[1] != '5') continue;
            if (entries_) entries_[n] = {name, &symbol};
            n++;
        }
        if (entries_ || !n) break;
        entries_ = static_cast<Entry *>(malloc(n * sizeof *entries_));
        if (!entries_) return;
        n_entries_ = n;
    }
    if (n_entries_) qsort(entries_, n_entries_, sizeof *entries_, compare_names);
}

// What the file holds for an address of the image; nullptr where that is not read from the file.
const unsigned char *SymbolTable::in_file(uintptr_t address, size_t n_bytes) const
{
    for (size_t i = 0; i < image_.n_segments; i++) {
        const ElfW(Phdr) &segment = image_.segments[i];
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            n_bytes <= segment.p_filesz && address - segment.p_vaddr <= segment.p_filesz - n_bytes)
            return at<unsigned char>(segment.p_offset + (address - segment.p_vaddr), n_bytes);
    }
    return nullptr;
}

void *SymbolTable::find(const char *name) const
{
    if (!n_entries_) return nullptr;
    const Entry wanted = {name, nullptr};
    const auto *found = static_cast<const Entry *>(
        bsearch(&wanted, entries_, n_entries_, sizeof *entries_, compare_names));
    if (!found) return nullptr;
    const Entry *const end = entries_ + n_entries_;
    if ((found > entries_ && !strcmp(found[-1].name, name)) ||
        (found + 1 < end && !strcmp(found[1].name, name)))
        return nullptr;
    const ElfW(Sym) &symbol = *found->symbol;
    void *address = reinterpret_cast<void *>(image_.bias + symbol.st_value);
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
        return image_.holds(address, sizeof(int64_t), PF_R | PF_W) ? address : nullptr;
    const size_t n_bytes = symbol.st_size < 64 ? symbol.st_size : 64;
    const unsigned char *code = in_file(symbol.st_value, n_bytes);
    // Code that may not be read cannot be compared.
    if (!n_bytes || !code || !image_.holds(address, n_bytes, PF_R | PF_X) ||
        memcmp(code, address, n_bytes) != 0)
        return nullptr;
    return address;
}

} // namespace sds::vol
