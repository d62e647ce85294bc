#include "sds/status.h"

const char *sds_status_text(sds_status status)
{
    switch (status) {
#define XX(name, value, text, exception)                                                           \
    case SDS_##name:                                                                               \
        return text;
        SDS_STATUS_MAP(XX)
#undef XX
    }
    return "unknown status";
}
