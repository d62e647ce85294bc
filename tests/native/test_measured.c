/* What was measured of file systems survives encoding, and no damage to it goes unnoticed. */
#include <string.h>

#include "check.h"
#include "sds/measured_format.h"

static sds_measured_filesystem filesystem(const char *mount_point, uint64_t kind, double call_s)
{
    sds_measured_filesystem made = {.mount_point = mount_point, .kind = kind};
    sds_io_parameters_builtin(&made.parameters);
    made.parameters.call_s = call_s;
    return made;
}

static const sds_io_parameters *find(const sds_measured *measured, const char *path)
{
    return sds_measured_find(measured, path, 7);
}

static void every_figure_survives(void)
{
    sds_measured_filesystem from = filesystem("/", 1, 1e-6);
    /* Every member another number, so that none can take the place of another. */
    double *figures = &from.parameters.reads.te_s;
    for (int i = 0; i < 12; i++)
        figures[i] = 1 + i;
    from.parameters.direct_min_bytes = 123456789;
    from.parameters.queue_depth = 48;
    from.parameters.is_measured = 1;
    from.parameters.loaded_s_per_byte = 77;
    void *bytes = NULL;
    size_t n = 0;
    CHECK(sds_measured_encode(1, &from, &bytes, &n) == SDS_OK);
    sds_measured *measured = NULL;
    CHECK(sds_measured_from_bytes(bytes, n, &measured) == SDS_OK);
    sds_measured_filesystem back;
    sds_measured_at(measured, 0, &back);
    CHECK(strcmp(back.mount_point, "/") == 0 && back.kind == 1);
    CHECK(memcmp(&back.parameters, &from.parameters, sizeof back.parameters) == 0);
    sds_measured_close(measured);
    free(bytes);
}

static void the_longest_mount_point_of_the_kind_is_found(void)
{
    const sds_measured_filesystem from[] = {
        filesystem("/", 7, 1e-6),
        filesystem("/scratch", 7, 2e-6),
        filesystem("/scratch/deep", 8, 3e-6),
    };
    void *bytes = NULL;
    size_t n = 0;
    CHECK(sds_measured_encode(3, from, &bytes, &n) == SDS_OK);
    sds_measured *measured = NULL;
    CHECK(sds_measured_from_bytes(bytes, n, &measured) == SDS_OK);
    CHECK(sds_measured_count(measured) == 3);
    CHECK(find(measured, "/home/file")->call_s == 1e-6);
    CHECK(find(measured, "/scratch/file")->call_s == 2e-6);
    CHECK(find(measured, "/scratch")->call_s == 2e-6);
    CHECK(find(measured, "/scratchy/file")->call_s == 1e-6);
    CHECK(find(measured, "/scratch/deep/file")->call_s == 2e-6);
    CHECK(find(measured, "relative") == NULL);
    CHECK(sds_measured_find(measured, "/scratch/file", 9) == NULL);
    sds_measured_close(measured);
    free(bytes);
}

static void no_flipped_bit_and_no_lost_end_goes_unnoticed(void)
{
    const sds_measured_filesystem from[] = {filesystem("/a", 1, 1e-6), filesystem("/b", 2, 2e-6)};
    void *bytes = NULL;
    size_t n = 0;
    CHECK(sds_measured_encode(2, from, &bytes, &n) == SDS_OK);
    uint8_t *damaged = bytes;
    sds_measured *measured = NULL;
    for (size_t i = 0; i < 8 * n; i++) {
        damaged[i / 8] ^= (uint8_t)(1U << i % 8);
        CHECK(sds_measured_from_bytes(damaged, n, &measured) != SDS_OK);
        damaged[i / 8] ^= (uint8_t)(1U << i % 8);
    }
    for (size_t shorter = 0; shorter < n; shorter++)
        CHECK(sds_measured_from_bytes(damaged, shorter, &measured) != SDS_OK);
    free(bytes);
}

static void nothing_is_encoded_that_would_be_refused(void)
{
    void *bytes = NULL;
    size_t n = 0;
    sds_measured_filesystem relative = filesystem("scratch", 1, 1e-6);
    CHECK(sds_measured_encode(1, &relative, &bytes, &n) == SDS_EINVAL);
    sds_measured_filesystem negative = filesystem("/", 1, -1e-6);
    CHECK(sds_measured_encode(1, &negative, &bytes, &n) == SDS_EINVAL);
    sds_measured_filesystem no_depth = filesystem("/", 1, 1e-6);
    no_depth.parameters.queue_depth = 0;
    CHECK(sds_measured_encode(1, &no_depth, &bytes, &n) == SDS_EINVAL);
    CHECK(sds_measured_encode(0, NULL, &bytes, &n) == SDS_OK);
    free(bytes);
}

int main(void)
{
    every_figure_survives();
    the_longest_mount_point_of_the_kind_is_found();
    no_flipped_bit_and_no_lost_end_goes_unnoticed();
    nothing_is_encoded_that_would_be_refused();
    return 0;
}
