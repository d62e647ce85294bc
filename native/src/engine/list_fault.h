/* Refusing lists with the reason. Internal. */
#ifndef SDS_LIST_FAULT_H
#define SDS_LIST_FAULT_H

#include "sds/list_io.h"

/* Set the fault, which may be NULL, and return the status that its rule stands for. */
sds_status sds__list_fail(sds_list_fault *fault, sds_list_fault as);

#endif
