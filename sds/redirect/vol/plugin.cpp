// Entry points by which an HDF5 library loads the connector.
extern "C" __attribute__((visibility("default"))) int H5PLget_plugin_type(void) { return 1; }
extern "C" __attribute__((visibility("default"))) const void *H5PLget_plugin_info(void) { return nullptr; }
