// The functions that a loaded library calls in others: the loader keeps their addresses in slots of
// the library, which its relocations name.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

#include "binding.h"

namespace nb = nanobind;

namespace
{

#if defined(__x86_64__)
constexpr uint64_t slot_types[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#elif defined(__aarch64__)
constexpr uint64_t slot_types[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#else
constexpr uint64_t slot_types[] = {0, 0}; // none: nothing is replaced
#endif

// What the dynamic section of a library says of its symbols and relocations.
struct Dynamic {
    uintptr_t bias = 0;
    const ElfW(Sym) *symbols = nullptr;
    const char *names = nullptr;
    const ElfW(Rela) * relocations[2] = {nullptr, nullptr}; // of calls, and all others
    size_t n_bytes[2] = {0, 0};

    explicit Dynamic(const link_map &library) : bias(library.l_addr)
    {
        for (const ElfW(Dyn) *entry = library.l_ld; entry->d_tag != DT_NULL; entry++) {
            const uintptr_t value = entry->d_un.d_val;
            // Some C libraries have added the bias to what is an address, others have not.
            const uintptr_t address = value < bias ? bias + value : value;
            if (entry->d_tag == DT_SYMTAB)
                symbols = reinterpret_cast<const ElfW(Sym) *>(address);
            else if (entry->d_tag == DT_STRTAB)
                names = reinterpret_cast<const char *>(address);
            else if (entry->d_tag == DT_JMPREL)
                relocations[0] = reinterpret_cast<const ElfW(Rela) *>(address);
            else if (entry->d_tag == DT_PLTRELSZ)
                n_bytes[0] = value;
            else if (entry->d_tag == DT_RELA)
                relocations[1] = reinterpret_cast<const ElfW(Rela) *>(address);
            else if (entry->d_tag == DT_RELASZ)
                n_bytes[1] = value;
        }
    }

    bool is_slot_of(const ElfW(Rela) & relocation, const char *function) const
    {
        const uint64_t type = ELF64_R_TYPE(relocation.r_info);
        if (type != slot_types[0] && type != slot_types[1]) return false;
        const ElfW(Sym) &symbol = symbols[ELF64_R_SYM(relocation.r_info)];
        return strcmp(names + symbol.st_name, function) == 0;
    }
};

struct ReadOnly {
    uintptr_t bias;
    uintptr_t page;
    uintptr_t page_bytes;
    bool is_found;
};

// Whether the loader has made a page unwritable after it had filled the slots in it.
int look_for_relro(dl_phdr_info *info, size_t, void *data)
{
    auto *wanted = static_cast<ReadOnly *>(data);
    if (info->dlpi_addr != wanted->bias) return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        const uintptr_t within = ~(wanted->page_bytes - 1);
        const uintptr_t begin = wanted->bias + segment.p_vaddr;
        // The loader leaves the last page alone where it is not covered whole.
        if (segment.p_type == PT_GNU_RELRO && wanted->page >= (begin & within) &&
            wanted->page < ((begin + segment.p_memsz) & within))
            wanted->is_found = true;
    }
    return 1;
}

void write_slot(uintptr_t bias, uintptr_t address, void *replacement)
{
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    ReadOnly relro = {bias, address & ~(page_bytes - 1), page_bytes, false};
    dl_iterate_phdr(look_for_relro, &relro);
    auto *page = reinterpret_cast<void *>(relro.page);
    if (relro.is_found && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0)
        check(SDS_EIO, "mprotect");
    __atomic_store_n(reinterpret_cast<void **>(address), replacement, __ATOMIC_RELEASE);
    if (relro.is_found && mprotect(page, page_bytes, PROT_READ) != 0) check(SDS_EIO, "mprotect");
}

void *load(const nb::bytes &path)
{
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return library;
}

int replace_import(const nb::bytes &path, const char *function, const nb::bytes &by)
{
    void *replacement = dlsym(load(by), function);
    if (!replacement) throw std::runtime_error(dlerror());
    link_map *library = nullptr;
    if (dlinfo(load(path), RTLD_DI_LINKMAP, &library) != 0) throw std::runtime_error(dlerror());
    const Dynamic dynamic(*library);
    int n_slots = 0;
    for (size_t kind = 0; kind < 2; kind++) {
        const ElfW(Rela) *first = dynamic.relocations[kind];
        const size_t n = first ? dynamic.n_bytes[kind] / sizeof *first : 0;
        for (size_t i = 0; i < n; i++) {
            if (!dynamic.is_slot_of(first[i], function)) continue;
            write_slot(dynamic.bias, dynamic.bias + first[i].r_offset, replacement);
            n_slots++;
        }
    }
    return n_slots;
}

} // namespace

void bind_library_imports(nb::module_ &module)
{
    module.def("replace_import", replace_import, nb::arg("library"), nb::arg("function"),
               nb::arg("by"));
}
