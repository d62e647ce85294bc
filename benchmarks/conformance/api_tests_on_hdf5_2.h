/* Included before every source of the API tests of HDF5 1.14, so that they compile against HDF5 2
 * and judge it rightly. In version 2:
 *  - the private headers name booleans and compiler warnings otherwise;
 *  - there is one more class of datatypes, which their generator of random types does not know;
 *  - each query for a connector gives another id, where they compare ids.
 * And in any version: the same seed for every run, so that runs can be compared. */
#include <stdbool.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#include <hdf5.h>

#define time(unused) ((time_t)1)

#if H5_VERSION_GE(2, 0, 0)
#define TRUE true
#define FALSE false
#define H5_GCC_DIAG_OFF(unused)
#define H5_GCC_DIAG_ON(unused)
#define H5_GCC_CLANG_DIAG_OFF(unused)
#define H5_GCC_CLANG_DIAG_ON(unused)
#define H5T_NCLASSES H5T_COMPLEX

/* The id that is known already, counted once more, where the connector of that name is the same. */
static inline hid_t same_connector(hid_t known, hid_t named)
{
    int order = 1;
    if (H5VLcmp_connector_cls(&order, known, named) < 0 || order != 0) return named;
    H5VLclose(named);
    H5Iinc_ref(known);
    return known;
}
#define H5VLget_connector_id_by_name(name)                                                         \
    same_connector(default_con_id, (H5VLget_connector_id_by_name)(name))
#endif
