#include "sds/measured_format.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "sds/checksum.h"
#include "small_file.h"

#define MAGIC "SDSFILES"
#define CHECKSUM_AT 12
#define MAX_BYTES (1 << 20)
#define MAX_MOUNT_BYTES 4095
#define N_FIGURES 31

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t crc32c;
    uint64_t n_bytes;
    uint32_t n_filesystems;
    uint32_t n_figures;
} header;

typedef struct {
    const char *mount_point; /* into names */
    uint64_t kind;
    sds_io_parameters parameters;
} entry;

struct sds_measured {
    uint32_t owner;
    uint32_t mode;
    size_t n;
    entry *entries;
    char *names;
};

static void put_costs(const sds_pmd_costs *from, double out[])
{
    out[0] = from->te_s;
    out[1] = from->tt_s_per_byte;
    out[2] = from->startup_s;
    out[3] = from->cud_s_per_byte;
    out[4] = from->lqdep_s;
}

static void take_costs(const double from[], sds_pmd_costs *out)
{
    *out = (sds_pmd_costs){from[0], from[1], from[2], from[3], from[4]};
}

static void put_figures(const sds_io_parameters *from, double out[N_FIGURES])
{
    const double figures[N_FIGURES - 10] = {
        from->clients,
        from->nodes,
        from->queued_startup_s,
        from->queue_setup_s,
        from->buffered_s_per_byte,
        from->direct_s_per_byte,
        from->direct_setup_s,
        (double)from->direct_min_bytes,
        (double)from->queue_depth,
        from->call_s,
        from->copy_s_per_byte,
        from->cached_copy_s_per_byte,
        from->vector_s,
        from->hole_s_per_byte,
        from->pick_s,
        from->map_s,
        from->guard_s,
        from->table_s,
        from->touch_s,
        from->load_s,
        from->loaded_s_per_byte,
    };
    put_costs(&from->reads, out);
    put_costs(&from->writes, out + 5);
    memcpy(out + 10, figures, sizeof figures);
}

/* Whether the figures are parameters. */
static int take_figures(const double from[N_FIGURES], sds_io_parameters *out)
{
    const double direct_min_bytes = from[17], queue_depth = from[18];
    if (!(direct_min_bytes >= 0 && direct_min_bytes < 0x1p62 && queue_depth >= 1 &&
          queue_depth < 0x1p20))
        return 0;
    take_costs(from, &out->reads);
    take_costs(from + 5, &out->writes);
    out->clients = from[10];
    out->nodes = from[11];
    out->queued_startup_s = from[12];
    out->queue_setup_s = from[13];
    out->buffered_s_per_byte = from[14];
    out->direct_s_per_byte = from[15];
    out->direct_setup_s = from[16];
    out->direct_min_bytes = (int64_t)direct_min_bytes;
    out->queue_depth = (int32_t)queue_depth;
    out->is_measured = 1;
    out->call_s = from[19];
    out->copy_s_per_byte = from[20];
    out->cached_copy_s_per_byte = from[21];
    out->vector_s = from[22];
    out->hole_s_per_byte = from[23];
    out->pick_s = from[24];
    out->map_s = from[25];
    out->guard_s = from[26];
    out->table_s = from[27];
    out->touch_s = from[28];
    out->load_s = from[29];
    out->loaded_s_per_byte = from[30];
    return sds_io_parameters_are_valid(out);
}

static uint32_t checksum_of(const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[4];
    const uint32_t before = sds_crc32c(0, bytes, CHECKSUM_AT);
    return sds_crc32c(sds_crc32c(before, zeros, 4), bytes + CHECKSUM_AT + 4, n - CHECKSUM_AT - 4);
}

sds_status sds_measured_encode(size_t n, const sds_measured_filesystem filesystems[], void **bytes,
                               size_t *n_bytes)
{
    header head = {.magic = MAGIC, .version = SDS_MEASURED_VERSION, .n_figures = N_FIGURES};
    sds__buffer buffer = {0};
    sds__put(&buffer, &head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const sds_measured_filesystem *from = &filesystems[i];
        const size_t length = strlen(from->mount_point);
        double figures[N_FIGURES];
        put_figures(&from->parameters, figures);
        sds_io_parameters taken;
        if (from->mount_point[0] != '/' || length > MAX_MOUNT_BYTES ||
            !take_figures(figures, &taken)) {
            sds__buffer_free(&buffer);
            return SDS_EINVAL;
        }
        const uint32_t stored_length = (uint32_t)length;
        sds__put(&buffer, &from->kind, sizeof from->kind);
        sds__put(&buffer, figures, sizeof figures);
        sds__put(&buffer, &stored_length, sizeof stored_length);
        sds__put(&buffer, from->mount_point, length);
    }
    if (buffer.failed || buffer.n > MAX_BYTES) {
        const sds_status status = buffer.failed ? SDS_ENOMEM : SDS_ELIMIT;
        sds__buffer_free(&buffer);
        return status;
    }
    head.n_filesystems = (uint32_t)n;
    head.n_bytes = buffer.n;
    memcpy(buffer.bytes, &head, sizeof head);
    head.crc32c = checksum_of(buffer.bytes, buffer.n);
    memcpy(buffer.bytes, &head, sizeof head);
    *bytes = buffer.bytes;
    *n_bytes = buffer.n;
    return SDS_OK;
}

/* Decode one file system; its mount point goes to *names, which moves behind it. */
static int take_entry(sds__view *view, char **names, entry *out)
{
    double figures[N_FIGURES];
    uint32_t length;
    const uint8_t *at = sds__take(view, sizeof out->kind + sizeof figures + sizeof length);
    if (at == NULL) return 0;
    memcpy(&out->kind, at, sizeof out->kind);
    memcpy(figures, at + sizeof out->kind, sizeof figures);
    memcpy(&length, at + sizeof out->kind + sizeof figures, sizeof length);
    const uint8_t *name = length <= MAX_MOUNT_BYTES ? sds__take(view, length) : NULL;
    if (name == NULL || length == 0 || name[0] != '/' || memchr(name, '\0', length) != NULL)
        return 0;
    out->mount_point = memcpy(*names, name, length);
    (*names)[length] = '\0';
    *names += length + 1;
    return take_figures(figures, &out->parameters);
}

static sds_status check_header(const uint8_t *bytes, size_t n, header *out)
{
    if (n < sizeof *out) return SDS_EFORMAT;
    memcpy(out, bytes, sizeof *out);
    if (memcmp(out->magic, MAGIC, sizeof out->magic) != 0) return SDS_EFORMAT;
    if (out->version != SDS_MEASURED_VERSION) return SDS_EVERSION;
    /* An entry takes more than 64 bytes: what follows allocates no more than a file can call for.
     */
    if (out->n_bytes != n || out->crc32c != checksum_of(bytes, n) || out->n_figures != N_FIGURES ||
        out->n_filesystems > n / 64)
        return SDS_EFORMAT;
    return SDS_OK;
}

static sds_status decode(const uint8_t *bytes, size_t n, sds_measured **out)
{
    header head;
    const sds_status status = check_header(bytes, n, &head);
    if (status != SDS_OK) return status;
    sds_measured *made = calloc(1, sizeof *made);
    if (made == NULL) return SDS_ENOMEM;
    made->n = head.n_filesystems;
    made->entries = calloc(made->n > 0 ? made->n : 1, sizeof *made->entries);
    made->names = malloc(n); /* shorter by far: each name and its NUL */
    if (made->entries == NULL || made->names == NULL) {
        sds_measured_close(made);
        return SDS_ENOMEM;
    }
    sds__view view = {bytes + sizeof head, n - sizeof head, 0};
    char *names = made->names;
    for (size_t i = 0; i < made->n; i++)
        if (!take_entry(&view, &names, &made->entries[i])) view.failed = 1;
    if (view.failed || view.left != 0) {
        sds_measured_close(made);
        return SDS_EFORMAT;
    }
    *out = made;
    return SDS_OK;
}

sds_status sds_measured_open(const char *path, sds_measured **out)
{
    sds__small_file file;
    sds_status status = sds__small_file_read(path, MAX_BYTES, &file);
    if (status != SDS_OK) return status;
    status = decode(file.bytes, file.n, out);
    free(file.bytes);
    if (status != SDS_OK) return status;
    (*out)->owner = file.owner;
    (*out)->mode = file.mode;
    return SDS_OK;
}

sds_status sds_measured_from_bytes(const void *bytes, size_t n, sds_measured **out)
{
    return n > MAX_BYTES ? SDS_EFORMAT : decode(bytes, n, out);
}

void sds_measured_close(sds_measured *measured)
{
    if (measured == NULL) return;
    free(measured->entries);
    free(measured->names);
    free(measured);
}

uint32_t sds_measured_owner(const sds_measured *measured)
{
    return measured->owner;
}

uint32_t sds_measured_mode(const sds_measured *measured)
{
    return measured->mode;
}

size_t sds_measured_count(const sds_measured *measured)
{
    return measured->n;
}

void sds_measured_at(const sds_measured *measured, size_t i, sds_measured_filesystem *out)
{
    const entry *found = &measured->entries[i];
    *out = (sds_measured_filesystem){found->mount_point, found->kind, found->parameters};
}

/* Length of the mount point where it holds the path, 0 otherwise. "/" holds every one. */
static size_t holds(const char *mount_point, const char *path)
{
    const size_t n = strlen(mount_point);
    if (n == 1) return path[0] == '/';
    return strncmp(path, mount_point, n) == 0 && (path[n] == '/' || path[n] == '\0') ? n : 0;
}

const sds_io_parameters *sds_measured_find(const sds_measured *measured, const char *canonical_path,
                                           uint64_t kind)
{
    const sds_io_parameters *found = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < measured->n; i++) {
        const entry *at = &measured->entries[i];
        const size_t n = at->kind == kind ? holds(at->mount_point, canonical_path) : 0;
        if (n <= longest) continue;
        longest = n;
        found = &at->parameters;
    }
    return found;
}
