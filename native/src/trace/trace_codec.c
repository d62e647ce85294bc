#include "sds/checksum.h"
#include "trace_layout.h"

uint32_t sds__block_crc32c(const sds__block_header *header, const uint8_t *payload)
{
    const uint32_t crc = sds_crc32c(0, header, offsetof(sds__block_header, crc32c));
    return sds_crc32c(crc, payload, header->length_bytes);
}

void sds__put_block(sds__buffer *out, sds__block_type type, const uint8_t *payload, size_t n)
{
    if (n > SDS__BLOCK_MAX_BYTES) {
        out->failed = 1;
        return;
    }
    sds__block_header header = {
        .version = SDS_TRACE_VERSION, .type = (uint16_t)type, .length_bytes = (uint32_t)n};
    memcpy(header.magic, SDS__BLOCK_MAGIC, sizeof header.magic);
    header.crc32c = sds__block_crc32c(&header, payload);
    sds__put(out, &header, sizeof header);
    sds__put(out, payload, n);
}

void sds__record_coder_init(sds__record_coder *coder)
{
    memset(coder, 0, sizeof *coder);
}

static int same_shape(const sds_trace_read *a, const sds_trace_read *b)
{
    const size_t n = (size_t)a->slab.rank * sizeof(int64_t);
    return a->slab.rank == b->slab.rank && a->n_elements == b->n_elements &&
           memcmp(a->slab.stride, b->slab.stride, n) == 0 &&
           memcmp(a->slab.count, b->slab.count, n) == 0 &&
           memcmp(a->slab.block, b->slab.block, n) == 0;
}

static uint8_t *code_latency(uint8_t *at, const uint32_t latency[])
{
    uint8_t *n_used = at++; /* at most 40: one byte */
    *n_used = 0;
    for (int bucket = 0; bucket < SDS_TRACE_LATENCY_BUCKETS; bucket++) {
        if (latency[bucket] == 0) continue;
        ++*n_used;
        *at++ = (uint8_t)bucket;
        at = sds__code_varint(at, latency[bucket]);
    }
    return at;
}

/* What the next record is compared with. */
static void keep(sds__record_coder *coder, const sds_trace_record *record)
{
    sds_trace_read *kept = &coder->before.first;
    const sds_trace_read *read = &record->first;
    const size_t n = (size_t)read->slab.rank * sizeof(int64_t);
    for (int32_t axis = read->slab.rank; axis < kept->slab.rank; axis++)
        kept->slab.start[axis] = 0;
    memcpy(kept->slab.start, read->slab.start, n);
    memcpy(kept->slab.stride, read->slab.stride, n);
    memcpy(kept->slab.count, read->slab.count, n);
    memcpy(kept->slab.block, read->slab.block, n);
    kept->slab.rank = read->slab.rank;
    kept->n_elements = read->n_elements;
    kept->dataset = read->dataset;
    kept->start_ns = read->start_ns;
    coder->before.thread = record->thread;
}

void sds__put_record(sds__record_coder *coder, sds__buffer *out, const sds_trace_record *record)
{
    const sds_trace_read *read = &record->first;
    const sds_trace_read *before = &coder->before.first;
    const int shape_known = same_shape(read, before);
    const int owner_known =
        read->dataset == before->dataset && record->thread == coder->before.thread;
    uint8_t *at = sds__buffer_extend(out, SDS__RECORD_BYTES);
    if (at == NULL) return;

    uint8_t flags = (uint8_t)(read->kind & SDS__RECORD_KIND);
    if (read->collective) flags |= SDS__RECORD_COLLECTIVE;
    if (read->served_by != 0) flags |= SDS__RECORD_REPLICA;
    if (shape_known) flags |= SDS__RECORD_SAME_SHAPE;
    if (owner_known) flags |= SDS__RECORD_SAME_OWNER;
    *at++ = flags;
    *at++ = (uint8_t)record->n_loops;
    if (!owner_known) {
        at = sds__code_varint(at, read->dataset);
        at = sds__code_varint(at, record->thread);
    }
    if (read->served_by != 0) at = sds__code_zigzag(at, read->served_by);

    const int32_t rank = read->slab.rank;
    if (!shape_known) {
        *at++ = (uint8_t)rank;
        for (int32_t axis = 0; axis < rank; axis++) {
            at = sds__code_zigzag(at, read->slab.stride[axis]);
            at = sds__code_zigzag(at, read->slab.count[axis]);
            at = sds__code_zigzag(at, read->slab.block[axis]);
        }
        at = sds__code_zigzag(at, read->n_elements);
    }
    for (int32_t axis = 0; axis < rank; axis++)
        at = sds__code_zigzag(at, sds__wrap_sub(read->slab.start[axis], before->slab.start[axis]));
    for (int32_t loop = 0; loop < record->n_loops; loop++) {
        at = sds__code_varint(at, (uint64_t)record->repeat[loop]);
        for (int32_t axis = 0; axis < rank; axis++)
            at = sds__code_zigzag(at, record->advance[loop][axis]);
    }

    at = sds__code_zigzag(at, sds__wrap_sub(read->start_ns, before->start_ns));
    at = sds__code_varint(at, (uint64_t)record->elapsed_sum_ns);
    if (record->n_reads > 1) {
        at = sds__code_zigzag(at, sds__wrap_sub(record->last_start_ns, read->start_ns));
        at = sds__code_varint(at, (uint64_t)record->elapsed_min_ns);
        at = sds__code_varint(at, (uint64_t)(record->elapsed_max_ns - record->elapsed_min_ns));
        at = code_latency(at, record->latency);
    }
    out->n = (size_t)(at - out->bytes);
    keep(coder, record);
}

static void take_shape(sds__view *view, sds_trace_read *read)
{
    const uint8_t rank = sds__take_u8(view);
    if (rank > SDS_MAX_RANK) {
        view->failed = 1;
        return;
    }
    read->slab.rank = rank;
    for (int32_t axis = 0; axis < rank; axis++) {
        read->slab.stride[axis] = sds__take_zigzag(view);
        read->slab.count[axis] = sds__take_zigzag(view);
        read->slab.block[axis] = sds__take_zigzag(view);
    }
    read->n_elements = sds__take_zigzag(view);
}

static void take_loops(sds__view *view, sds_trace_record *record)
{
    record->n_reads = 1;
    for (int32_t loop = 0; loop < record->n_loops; loop++) {
        const uint64_t repeat = sds__take_varint(view);
        if (repeat < 2 || repeat > UINT32_MAX ||
            __builtin_mul_overflow(record->n_reads, (int64_t)repeat, &record->n_reads) ||
            record->n_reads > UINT32_MAX) {
            view->failed = 1;
            return;
        }
        record->repeat[loop] = (int64_t)repeat;
        for (int32_t axis = 0; axis < record->first.slab.rank; axis++)
            record->advance[loop][axis] = sds__take_zigzag(view);
    }
}

static void take_latency(sds__view *view, sds_trace_record *record)
{
    const uint64_t n_used = sds__take_varint(view);
    uint64_t n_reads = 0;
    int after = 0;
    for (uint64_t i = 0; i < n_used && !view->failed; i++) {
        const int bucket = sds__take_u8(view);
        const uint64_t count = sds__take_varint(view);
        if (bucket < after || bucket >= SDS_TRACE_LATENCY_BUCKETS || count == 0 ||
            count > UINT32_MAX) {
            view->failed = 1;
            return;
        }
        record->latency[bucket] = (uint32_t)count;
        n_reads += count;
        after = bucket + 1;
    }
    if (n_reads != (uint64_t)record->n_reads) view->failed = 1;
}

static void take_times(sds__view *view, sds_trace_record *record, int64_t before_ns)
{
    sds_trace_read *read = &record->first;
    read->start_ns = sds__wrap_add(before_ns, sds__take_zigzag(view));
    const uint64_t sum = sds__take_varint(view);
    uint64_t low = sum;
    uint64_t span = 0;
    record->last_start_ns = read->start_ns;
    if (record->n_reads > 1) {
        record->last_start_ns = sds__wrap_add(read->start_ns, sds__take_zigzag(view));
        low = sds__take_varint(view);
        span = sds__take_varint(view);
        take_latency(view, record);
    }
    if (sum > INT64_MAX || low > sum || span > sum - low) {
        view->failed = 1;
        return;
    }
    record->elapsed_sum_ns = (int64_t)sum;
    record->elapsed_min_ns = (int64_t)low;
    record->elapsed_max_ns = (int64_t)(low + span);
    read->elapsed_ns = record->n_reads == 1 ? record->elapsed_sum_ns : 0;
    if (record->n_reads == 1) record->latency[sds__latency_bucket(record->elapsed_sum_ns)] = 1;
}

void sds__take_record(sds__record_coder *coder, sds__view *view, sds_trace_record *record)
{
    const sds_trace_record *before = &coder->before;
    memset(record, 0, sizeof *record);
    sds_trace_read *read = &record->first;
    const uint8_t flags = sds__take_u8(view);
    record->n_loops = sds__take_u8(view);
    if (record->n_loops > SDS_TRACE_MAX_LOOPS) view->failed = 1;
    read->kind = flags & SDS__RECORD_KIND;
    read->collective = (flags & SDS__RECORD_COLLECTIVE) != 0;
    read->dataset = before->first.dataset;
    record->thread = before->thread;
    if (!(flags & SDS__RECORD_SAME_OWNER)) {
        const uint64_t dataset = sds__take_varint(view);
        const uint64_t thread = sds__take_varint(view);
        if (dataset > UINT32_MAX || thread > UINT32_MAX) view->failed = 1;
        read->dataset = (uint32_t)dataset;
        record->thread = (uint32_t)thread;
    }
    if (flags & SDS__RECORD_REPLICA) read->served_by = sds__take_zigzag(view);
    if (flags & SDS__RECORD_SAME_SHAPE) {
        read->slab = before->first.slab;
        read->n_elements = before->first.n_elements;
    } else {
        take_shape(view, read);
    }
    for (int32_t axis = 0; axis < read->slab.rank; axis++)
        read->slab.start[axis] =
            sds__wrap_add(before->first.slab.start[axis], sds__take_zigzag(view));
    if (view->failed) return;
    take_loops(view, record);
    if (view->failed) return;
    take_times(view, record, before->first.start_ns);
    if (!view->failed) coder->before = *record;
}

void sds__put_process(sds__buffer *out, const sds_trace_process *process)
{
    sds__put_zigzag(out, process->pid);
    sds__put_zigzag(out, process->rank);
    sds__put_zigzag(out, process->n_ranks);
    sds__put_zigzag(out, process->start_ns);
    sds__put_string(out, process->host);
    sds__put_string(out, process->executable);
    sds__put_string(out, process->job_id);
    sds__put_string(out, process->user);
}

void sds__put_dataset(sds__buffer *out, uint32_t id, const sds_trace_dataset *dataset)
{
    sds__put_varint(out, id);
    sds__put_string(out, dataset->file);
    sds__put_string(out, dataset->path);
    sds__put_varint(out, dataset->identity.inode);
    sds__put_zigzag(out, dataset->identity.size_bytes);
    sds__put_zigzag(out, dataset->identity.mtime_ns);
    sds__put_zigzag(out, dataset->identity.ctime_ns);
    sds__put_u8(out, (uint8_t)dataset->rank);
    for (int32_t axis = 0; axis < dataset->rank; axis++) {
        sds__put_zigzag(out, dataset->extent[axis]);
        sds__put_zigzag(out, dataset->chunk[axis]);
    }
    sds__put_zigzag(out, dataset->element_bytes);
    sds__put_zigzag(out, dataset->type_class);
    sds__put_zigzag(out, dataset->storage);
    sds__put_zigzag(out, dataset->n_filters);
    sds__put_zigzag(out, dataset->data_offset_bytes);
    const size_t n = strnlen(dataset->hdf5_version, sizeof dataset->hdf5_version - 1);
    sds__put_varint(out, n);
    sds__put(out, dataset->hdf5_version, n);
}

static int32_t take_int32(sds__view *view)
{
    const int64_t value = sds__take_zigzag(view);
    if (value < INT32_MIN || value > INT32_MAX) view->failed = 1;
    return view->failed ? 0 : (int32_t)value;
}

/* The next string: where it lies in the view. */
static const uint8_t *take_string(sds__view *view, size_t *n)
{
    const uint64_t length = sds__take_varint(view);
    const uint8_t *at = length > view->left ? NULL : sds__take(view, (size_t)length);
    if (at == NULL || memchr(at, 0, (size_t)length) != NULL) view->failed = 1;
    *n = view->failed ? 0 : (size_t)length;
    return at;
}

/* Copy n_strings strings with their NULs into one allocation, *text. */
static void take_strings(sds__view *view, int n_strings, const char *strings[], char **text)
{
    const uint8_t *at[8];
    size_t n[8];
    size_t total = 0;
    *text = NULL;
    for (int i = 0; i < n_strings; i++) {
        at[i] = take_string(view, &n[i]);
        total += n[i] + 1;
    }
    char *to = view->failed ? NULL : malloc(total);
    if (to == NULL) {
        view->failed = 1;
        return;
    }
    *text = to;
    for (int i = 0; i < n_strings; i++) {
        strings[i] = to;
        memcpy(to, at[i], n[i]);
        to[n[i]] = '\0';
        to += n[i] + 1;
    }
}

void sds__take_process(sds__view *view, sds_trace_process *process, char **text)
{
    const char *strings[4] = {"", "", "", ""};
    process->pid = sds__take_zigzag(view);
    process->rank = take_int32(view);
    process->n_ranks = take_int32(view);
    process->start_ns = sds__take_zigzag(view);
    take_strings(view, 4, strings, text);
    process->host = strings[0];
    process->executable = strings[1];
    process->job_id = strings[2];
    process->user = strings[3];
}

uint32_t sds__take_dataset(sds__view *view, sds_trace_dataset *dataset, char **text)
{
    const char *strings[2] = {"", ""};
    memset(dataset, 0, sizeof *dataset);
    const uint64_t id = sds__take_varint(view);
    take_strings(view, 2, strings, text);
    dataset->file = strings[0];
    dataset->path = strings[1];
    dataset->identity.inode = sds__take_varint(view);
    dataset->identity.size_bytes = sds__take_zigzag(view);
    dataset->identity.mtime_ns = sds__take_zigzag(view);
    dataset->identity.ctime_ns = sds__take_zigzag(view);
    const uint8_t rank = sds__take_u8(view);
    if (rank > SDS_MAX_RANK || id == 0 || id > SDS_TRACE_MAX_DATASETS) view->failed = 1;
    if (view->failed) return 0;
    dataset->rank = rank;
    for (int32_t axis = 0; axis < dataset->rank; axis++) {
        dataset->extent[axis] = sds__take_zigzag(view);
        dataset->chunk[axis] = sds__take_zigzag(view);
    }
    dataset->element_bytes = sds__take_zigzag(view);
    dataset->type_class = take_int32(view);
    dataset->storage = take_int32(view);
    dataset->n_filters = take_int32(view);
    dataset->data_offset_bytes = sds__take_zigzag(view);
    size_t n = 0;
    const uint8_t *version = take_string(view, &n);
    if (n >= sizeof dataset->hdf5_version) view->failed = 1;
    if (view->failed) return 0;
    memcpy(dataset->hdf5_version, version, n);
    return (uint32_t)id;
}
