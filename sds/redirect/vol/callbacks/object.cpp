#include "object.h"

#include <stdlib.h>

#include "error_stack.h"
#include "known_datasets.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_file.h"
#include "shared_state.h"

namespace sds::vol
{

namespace
{

int n_wrapped = 0;

// A bare object: 1 in bit 0, the host's slot in bits 1 to 3, the file's number from bit 48 on.
constexpr int file_shift = 48;
constexpr uintptr_t may_lack_path_bit = uintptr_t{1} << 62;
static_assert(max_hosts == 8, "slots of hosts take bits 1 to 3");
static_assert(sizeof(void *) == 8, "bare objects keep their files in bits of 64");
static_assert(most_numbered_files < 1 << 14, "file numbers take bits 48 to 61");

OpenFile *file_of(const void *bare)
{
    const uintptr_t bits = reinterpret_cast<uintptr_t>(bare) & ~may_lack_path_bit;
    return numbered_file(static_cast<int>(bits >> file_shift));
}

// nullptr where it takes a wrapper.
void *make_bare(const Host &host, hid_t connector, void *under, OpenFile *file, bool may_lack_path)
{
    const auto bits = reinterpret_cast<uintptr_t>(under);
    if (connector != host.native || under_bare(under) != under || (file && file->number == 0))
        return nullptr;
    const uintptr_t number = file ? static_cast<uintptr_t>(file->number) : 0;
    return reinterpret_cast<void *>(bits | 1 | static_cast<uintptr_t>(host.slot) << 1 |
                                    number << file_shift | (may_lack_path ? may_lack_path_bit : 0));
}

void let_go(OpenFile *file)
{
    if (!file) return;
    after_close(file->original);
    release_file(file);
}

// What is known of bare datasets: of those that were read last, by what HDF5 holds of them. Taken
// out for a read; who reads the same one meanwhile makes it once more.
struct KeptState {
    const void *bare;
    OpenDataset *dataset;
    uint64_t used;
};
constexpr int n_sets = 32, n_ways = 4;
KeptState kept[n_sets][n_ways];
uint64_t n_uses = 0;

KeptState *set_of(const void *bare)
{
    const uint64_t hash = reinterpret_cast<uintptr_t>(bare) * UINT64_C(0x9E3779B97F4A7C15);
    return kept[hash >> 40 & (n_sets - 1)];
}

} // namespace

Object *wrap(Host &host, hid_t connector, void *under)
{
    if (!under) return nullptr;
    // Not calloc: that of glibc takes nothing from the thread's cache of freed memory, and objects
    // are opened and closed in their thousands.
    auto *object = static_cast<Object *>(malloc(sizeof(Object)));
    if (!object) return nullptr;
    __atomic_add_fetch(&n_wrapped, 1, __ATOMIC_RELAXED);
    *object = {};
    object->under = under;
    object->connector = connector;
    object->below = &host.class_of(connector);
    object->host = &host;
    // The native connector is held once by its host; counting it per object costs more than a read.
    if (connector != host.native) host.hdf5.H5Iinc_ref(connector);
    return object;
}

void *hand_out(Host &host, hid_t connector, void *under, OpenFile *file, bool may_lack_path)
{
    if (!under) return nullptr;
    if (seldom(__atomic_load_n(&n_wrapped, __ATOMIC_RELAXED) >= most_wrapped)) {
        void *bare = make_bare(host, connector, under, file, may_lack_path);
        if (bare && file) hold_file(file);
        if (bare) return bare;
    }
    Object *object = wrap(host, connector, under);
    if (!object) return nullptr;
    if (file) object->file = hold_file(file);
    object->may_lack_path = may_lack_path;
    return object;
}

void *wrap_beside(const Object &neighbour, void *under, bool may_lack_path)
{
    return hand_out(*neighbour.host, neighbour.connector, under, neighbour.file,
                    may_lack_path || neighbour.may_lack_path);
}

void Handle::make_wrapper()
{
    Host &host = host_of_bare(given_);
    OpenFile *file = file_of(given_);
    made_ = {};
    made_.under = under_bare(given_);
    made_.connector = host.native;
    made_.below = &host.class_of(host.native);
    made_.host = &host;
    made_.file = file ? hold_file(file) : nullptr;
    made_.may_lack_path = reinterpret_cast<uintptr_t>(given_) & may_lack_path_bit;
    object_ = &made_;
}

void Handle::drop_wrapper()
{
    if (made_.file == nullptr) return;
    // A write may have found another file than that through which it was reached. Where HDF5 has
    // opened that by itself, nobody knows when it is closed: it stays known as one that is written.
    if (made_.file == file_of(given_))
        release_file(made_.file);
    else
        release_unless_last(made_.file);
}

void Handle::release()
{
    if (is_made()) {
        forget_dataset(made_);
        OpenFile *file = file_of(given_);
        drop_wrapper();
        object_ = nullptr;
        let_go(file);
        return;
    }
    const Host &host = *object_->host;
    forget_dataset(*object_);
    let_go(object_->file);
    if (object_->connector != host.native) {
        ErrorStackKeeper keep(host);
        host.hdf5.H5Idec_ref(object_->connector);
    }
    free(object_);
    object_ = nullptr;
    __atomic_sub_fetch(&n_wrapped, 1, __ATOMIC_RELAXED);
}

void DatasetHandle::take_state()
{
    SharedStateLock lock;
    take_known(given_);
    KeptState *set = set_of(given_);
    for (int i = 0; i < n_ways; i++)
        if (set[i].bare == given_) {
            (*this)->dataset = set[i].dataset;
            set[i] = {};
            return;
        }
}

void DatasetHandle::keep_state()
{
    OpenDataset *dropped = (*this)->dataset;
    if (!dropped) return;
    {
        SharedStateLock lock;
        keep_known(given_, *dropped);
        KeptState *set = set_of(given_), *oldest = set;
        for (int i = 0; i < n_ways; i++) {
            if (set[i].bare == given_) {
                oldest = &set[i];
                break;
            }
            if (set[i].used < oldest->used) oldest = &set[i];
        }
        OpenDataset *before = oldest->dataset;
        *oldest = {given_, dropped, ++n_uses};
        dropped = before;
    }
    (*this)->dataset = nullptr;
    if (dropped) release_dataset(dropped);
}

} // namespace sds::vol
