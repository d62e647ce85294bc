// The connector's info: which connector lies below it.
#pragma once

#include "host.h"

namespace sds::vol
{

struct ConnectorInfo {
    Host *host;
    hid_t under_connector;
    void *under_info;
};

void fill_info_class(H5VL_info_class_t &info_class);
herr_t info_from_text(Host &host, const char *text, void **info);
herr_t free_info(void *info);

// A file access list for the connector below: the one that the program passed, or a copy that
// names the connector.
class UnderAccess
{
  public:
    UnderAccess(Host &host, hid_t fapl);
    ~UnderAccess();
    UnderAccess(const UnderAccess &) = delete;
    UnderAccess &operator=(const UnderAccess &) = delete;

    bool ok() const { return fapl_ >= 0; }
    hid_t fapl() const { return fapl_; }
    hid_t connector() const { return connector_; }

  private:
    Host &host_;
    ConnectorInfo *info_;
    hid_t connector_;
    hid_t fapl_;
    bool is_copy_;
};

} // namespace sds::vol
