#include "connector_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error_stack.h"

namespace sds::vol
{
namespace
{

const ConnectorInfo &as_info(const void *info)
{
    return *static_cast<const ConnectorInfo *>(info);
}

void *copy_info(const void *original)
{
    const ConnectorInfo &from = as_info(original);
    const Functions &hdf5 = from.host->hdf5;
    auto *copy = static_cast<ConnectorInfo *>(calloc(1, sizeof(ConnectorInfo)));
    if (!copy) return nullptr;
    copy->host = from.host;
    copy->under_connector = from.under_connector;
    if (from.under_info && hdf5.H5VLcopy_connector_info(from.under_connector, &copy->under_info,
                                                        from.under_info) < 0) {
        free(copy);
        return nullptr;
    }
    hdf5.H5Iinc_ref(copy->under_connector);
    return copy;
}

herr_t compare_info(int *order, const void *left, const void *right)
{
    const ConnectorInfo &a = as_info(left), &b = as_info(right);
    const Functions &hdf5 = a.host->hdf5;
    // Identifiers of one connector may differ (2.x): values tell connectors apart.
    H5VL_class_value_t value_a = 0, value_b = 0;
    if (hdf5.H5VLget_value(a.under_connector, &value_a) < 0 ||
        hdf5.H5VLget_value(b.under_connector, &value_b) < 0)
        return -1;
    if (value_a != value_b) {
        *order = value_a < value_b ? -1 : 1;
        return 0;
    }
    return hdf5.H5VLcmp_connector_info(order, a.under_connector, a.under_info, b.under_info);
}

herr_t info_to_text(const void *info, char **text)
{
    const ConnectorInfo &self = as_info(info);
    const Functions &hdf5 = self.host->hdf5;
    H5VL_class_value_t value = 0;
    char *under_text = nullptr;
    if (hdf5.H5VLget_value(self.under_connector, &value) < 0) return -1;
    if (self.under_info &&
        hdf5.H5VLconnector_info_to_str(self.under_info, self.under_connector, &under_text) < 0)
        return -1;
    const char *shown = under_text ? under_text : "";
    const size_t size = strlen(shown) + sizeof "under_vol=-2147483648;under_info={}";
    *text = static_cast<char *>(hdf5.H5allocate_memory(size, false));
    if (*text)
        snprintf(*text, size, "under_vol=%d;under_info={%s}", static_cast<int>(value), shown);
    if (under_text) hdf5.H5free_memory(under_text);
    return *text ? 0 : -1;
}

} // namespace

herr_t free_info(void *info)
{
    auto *self = static_cast<ConnectorInfo *>(info);
    const Functions &hdf5 = self->host->hdf5;
    ErrorStackKeeper keep(*self->host);
    if (self->under_info) hdf5.H5VLfree_connector_info(self->under_connector, self->under_info);
    hdf5.H5Idec_ref(self->under_connector);
    free(self);
    return 0;
}

// "under_vol=<value>;under_info={<text for that connector>}"; the native one where none is named.
herr_t info_from_text(Host &host, const char *text, void **info)
{
    give_up_registration(host);
    const char *value = text ? strstr(text, "under_vol=") : nullptr;
    const char *open = text ? strchr(text, '{') : nullptr;
    const char *close = text ? strrchr(text, '}') : nullptr;
    const int under_value = value ? atoi(value + strlen("under_vol=")) : native_connector_value;
    auto *self = static_cast<ConnectorInfo *>(calloc(1, sizeof(ConnectorInfo)));
    if (!self) return -1;
    self->host = &host;
    // HDF5 2.x gives another identifier at each registration. One for the native connector lets
    // objects tell by comparison that they need no reference to it and no context of their own.
    if (under_value == native_connector_value) {
        self->under_connector = host.native;
        host.hdf5.H5Iinc_ref(host.native);
    } else {
        self->under_connector = host.hdf5.H5VLregister_connector_by_value(under_value, 0);
    }
    if (self->under_connector < 0) {
        free(self);
        return -1;
    }
    if (open && close > open + 1) {
        char *under_text = strndup(open + 1, static_cast<size_t>(close - open - 1));
        const bool parsed =
            under_text && host.hdf5.H5VLconnector_str_to_info(under_text, self->under_connector,
                                                              &self->under_info) >= 0;
        free(under_text);
        if (!parsed) {
            free_info(self);
            return -1;
        }
    }
    *info = self;
    return 0;
}

void fill_info_class(H5VL_info_class_t &info_class)
{
    info_class.size = sizeof(ConnectorInfo);
    info_class.copy = copy_info;
    info_class.cmp = compare_info;
    info_class.free = free_info;
    info_class.to_str = info_to_text;
}

UnderAccess::UnderAccess(Host &host, hid_t fapl)
    : host_(host), info_(nullptr), connector_(host.native), fapl_(-1), is_copy_(false)
{
    const Functions &hdf5 = host.hdf5;
    void *info = nullptr;
    if (hdf5.H5Pget_vol_info(fapl, &info) < 0) return;
    info_ = static_cast<ConnectorInfo *>(info);
    if (info_) connector_ = info_->under_connector;
    // Called directly, the native connector does not look for who is to open the file. Copying the
    // list would copy MPI's communicator, which all processes of it have to do together.
    if (host.class_of(connector_).file_cls.open) {
        fapl_ = fapl;
        return;
    }
    is_copy_ = true;
    fapl_ = hdf5.H5Pcopy(fapl);
    if (fapl_ >= 0 && hdf5.H5Pset_vol(fapl_, connector_, info_ ? info_->under_info : nullptr) < 0) {
        hdf5.H5Pclose(fapl_);
        fapl_ = -1;
    }
}

UnderAccess::~UnderAccess()
{
    ErrorStackKeeper keep(host_);
    if (is_copy_ && fapl_ >= 0) host_.hdf5.H5Pclose(fapl_);
    if (info_) free_info(info_);
}

} // namespace sds::vol
