#include "trace_writer.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_FILE_BYTES (INT64_C(64) << 20)
#define DEFAULT_FLUSH_NS (INT64_C(5) * 1000000000)
#define CHILD_FLUSH_NS 20000000
#define BLOCK_BYTES (32 << 10)       /* records are written when they fill this */
#define RESERVE_BYTES 4096           /* kept of the cap for the count of reads left out */
#define N_SETS 1024                  /* of datasets that are known again when they are added anew */
#define DESCRIPTION_BYTES (32 << 10) /* descriptions are written when they fill this */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sds__trace_compare_clocks(sds_trace_writer *writer)
{
    writer->dated_ns = clock_ns(CLOCK_MONOTONIC);
    writer->date_ns = clock_ns(CLOCK_REALTIME) - writer->dated_ns;
}

/* The process's strings in one allocation, so that a writer owns all that it names. */
static int copy_process(sds_trace_writer *writer, const sds_trace_process *process)
{
    const char *from[4] = {process->host, process->executable, process->job_id, process->user};
    const char **to[4] = {&writer->process.host, &writer->process.executable,
                          &writer->process.job_id, &writer->process.user};
    size_t total = 0;
    for (int i = 0; i < 4; i++)
        total += (from[i] == NULL ? 0 : strlen(from[i])) + 1;
    char *text = writer->text = malloc(total);
    if (text == NULL) return 0;
    writer->process = *process;
    for (int i = 0; i < 4; i++) {
        const size_t n = from[i] == NULL ? 0 : strlen(from[i]);
        if (n > 0) memcpy(text, from[i], n);
        text[n] = '\0';
        *to[i] = text;
        text += n + 1;
    }
    if (process->executable == NULL) writer->process.executable = NULL;
    return 1;
}

/* Free a writer without writing. */
static void destroy(sds_trace_writer *writer)
{
    sds__spool_file_free(&writer->file);
    sds__streams_free(&writer->streams);
    sds__walks_forget(&writer->walks);
    if (writer->known != NULL) munmap(writer->known, N_SETS * sizeof *writer->known);
    sds__buffer_free(&writer->descriptions);
    sds__buffer_free(&writer->records);
    if (writer->life != NULL) munmap((void *)writer->life, 4096);
    free(writer->spool_dir);
    free(writer->text);
    free(writer);
}

/* Zeros of which no page exists before it is used: malloc'd memory would be cleared, page by page,
 * within the first read of a process. */
static void *untouched(size_t n_bytes)
{
    void *pages = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* One page that the kernel zeroes in a child: the only way to notice a fork that costs a read
 * nothing and works for every kind of fork. Kernels before 4.14 leave it to sds_trace_after_fork.
 */
static _Atomic int *new_life(void)
{
    void *page = untouched(4096);
    if (page == NULL) return NULL;
    (void)madvise(page, 4096, MADV_WIPEONFORK);
    _Atomic int *life = page;
    atomic_store(life, SDS__ALIVE);
    return life;
}

sds_trace_writer *sds_trace_writer_new(const sds_trace_options *options,
                                       const sds_trace_process *process)
{
    if (options == NULL || process == NULL || options->spool_dir == NULL) return NULL;
    sds_trace_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    sds__trace_compare_clocks(writer);
    writer->walks.take_memory = options->take_memory;
    writer->walks.give_memory = options->give_memory;
    writer->spool_dir = strdup(options->spool_dir);
    writer->life = new_life();
    /* Whole from the start: a fork while another thread enlarges it would leave the child with
     * what was just freed. */
    if (sds__buffer_extend(&writer->records, BLOCK_BYTES + SDS__RECORD_BYTES) != NULL)
        writer->records.n = 0;
    if (sds__buffer_extend(&writer->descriptions, DESCRIPTION_BYTES) != NULL)
        writer->descriptions.n = 0;
    writer->known = untouched(N_SETS * sizeof *writer->known);
    if (writer->spool_dir == NULL || writer->life == NULL || writer->known == NULL ||
        writer->records.failed || writer->descriptions.failed || !copy_process(writer, process)) {
        destroy(writer);
        return NULL;
    }
    writer->max_file_bytes =
        options->max_file_bytes > 0 ? options->max_file_bytes : DEFAULT_FILE_BYTES;
    if (writer->max_file_bytes > SDS_TRACE_MAX_FILE_BYTES)
        writer->max_file_bytes = SDS_TRACE_MAX_FILE_BYTES;
    writer->flush_interval_ns =
        options->flush_interval_ns > 0 ? options->flush_interval_ns : DEFAULT_FLUSH_NS;
    writer->interval_ns = writer->flush_interval_ns;
    writer->max_datasets =
        options->max_datasets > 0 ? options->max_datasets : SDS_TRACE_MAX_DATASETS;
    sds__spool_file_init(&writer->file, writer->spool_dir, writer->process.host,
                         writer->process.pid, writer->process.start_ns, writer->max_file_bytes);
    return writer;
}

/* Behind what was just dropped or written. */
static void begin_block(sds_trace_writer *writer)
{
    writer->records.n = 0;
    writer->records.failed = 0;
    writer->n_reads_buffered = 0;
    sds__record_coder_init(&writer->coder);
}

/* Children of a fork often end without their libraries' knowing, by _exit or a signal. They are to
 * lose no more than the last fifth of their lives: the interval between two flushes grows. */
static void renew(sds_trace_writer *writer, int64_t pid)
{
    /* Another thread of the parent may have held it; that thread does not exist here. */
    sds_owner_lock_release(&writer->lock);
    sds__spool_file_free(&writer->file);
    writer->process.pid = pid;
    writer->process.start_ns = clock_ns(CLOCK_REALTIME);
    sds__spool_file_init(&writer->file, writer->spool_dir, writer->process.host, pid,
                         writer->process.start_ns, writer->max_file_bytes);
    writer->n_inherited = atomic_load(&writer->n_datasets);
    writer->descriptions.n = 0;
    sds__streams_forget(&writer->streams);
    sds__walks_forget(&writer->walks);
    writer->n_threads = 0;
    writer->n_aside = 0;
    begin_block(writer);
    writer->n_dropped = 0;
    writer->n_dropped_written = 0;
    writer->flushed_ns = 0;
    sds__trace_set_interval(writer, CHILD_FLUSH_NS);
    writer->full = 0;
}

void sds_trace_after_fork(sds_trace_writer *writer, int64_t pid)
{
    if (writer == NULL) return;
    atomic_store(writer->life, SDS__RENEWING);
    renew(writer, pid);
    atomic_store(writer->life, SDS__ALIVE);
}

void sds__trace_begin_life(sds_trace_writer *writer)
{
    int life = SDS__WIPED;
    if (atomic_compare_exchange_strong(writer->life, &life, SDS__RENEWING))
        sds_trace_after_fork(writer, (int64_t)getpid());
    while (atomic_load(writer->life) != SDS__ALIVE)
        sched_yield();
}

/* Where a dataset of this hash is or may be remembered. */
static sds__known_dataset *find_known(const sds_trace_writer *writer, const uint64_t hash[2])
{
    sds__known_dataset *set = writer->known[hash[0] % N_SETS];
    for (int i = 0; i < SDS__KNOWN_WAYS; i++)
        if (set[i].hash[0] == hash[0] && set[i].hash[1] == hash[1]) return &set[i];
    for (int i = 0; i < SDS__KNOWN_WAYS; i++)
        if (set[i].id <= writer->n_inherited) return &set[i];
    /* Not the oldest: of datasets that are opened in turn, all would be forgotten in time. */
    return &set[atomic_load(&writer->n_datasets) % SDS__KNOWN_WAYS];
}

static void put_dataset_block(sds__buffer *out, uint32_t id, const sds__buffer *description)
{
    sds__buffer payload = {0};
    sds__put_varint(&payload, id);
    sds__put(&payload, description->bytes + 1, description->n - 1); /* behind an id of 0 */
    if (payload.failed)
        out->failed = 1;
    else
        sds__put_block(out, SDS__BLOCK_DATASET, payload.bytes, payload.n);
    sds__buffer_free(&payload);
}

/* Not from the stack, which may be a small thread's. */
static char *find_executable(void)
{
    char *path = malloc(PATH_MAX);
    const ssize_t n = path == NULL ? -1 : readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n >= 0) path[n] = '\0';
    if (n >= 0) return path;
    free(path);
    return NULL;
}

static void put_head(const sds_trace_writer *writer, sds__buffer *out)
{
    sds__buffer payload = {0};
    sds_trace_process process = writer->process;
    char *found = process.executable == NULL ? find_executable() : NULL;
    if (process.executable == NULL) process.executable = found == NULL ? "" : found;
    sds__put_process(&payload, &process);
    free(found);
    if (payload.failed)
        out->failed = 1;
    else
        sds__put_block(out, SDS__BLOCK_PROCESS, payload.bytes, payload.n);
    sds__buffer_free(&payload);
}

/* Append blocks to the file; 1 where they are in it. */
static int append(sds_trace_writer *writer, const sds__buffer *blocks, int64_t reserve_bytes)
{
    sds__buffer head = {0};
    if (writer->file.size_bytes == 0) put_head(writer, &head);
    const int written = sds__spool_file_append(&writer->file, &head, blocks, reserve_bytes);
    sds__buffer_free(&head);
    return written;
}

static int64_t reserve_of(const sds_trace_writer *writer)
{
    return writer->max_file_bytes / 4 < RESERVE_BYTES ? writer->max_file_bytes / 4 : RESERVE_BYTES;
}

/* At the cap nothing will fit again; a full disk may empty. */
static void note_failure(sds_trace_writer *writer, size_t n_bytes)
{
    const int64_t room = writer->max_file_bytes - reserve_of(writer) - writer->file.size_bytes;
    writer->full = writer->file.gone || (int64_t)n_bytes > room;
}

/* Put a block behind the descriptions that are to be written, or write it, where it is too long for
 * that, behind them. 0 where there is no room. */
static int keep_description(sds_trace_writer *writer, const sds__buffer *block)
{
    sds__buffer *kept = &writer->descriptions;
    if (kept->n > 0 && kept->capacity - kept->n < block->n) {
        if (append(writer, kept, reserve_of(writer)))
            kept->n = 0;
        else
            note_failure(writer, kept->n);
    }
    if (kept->capacity - kept->n >= block->n) {
        sds__put(kept, block->bytes, block->n);
        return 1;
    }
    if (kept->n > 0) return 0;
    if (append(writer, block, reserve_of(writer))) return 1;
    note_failure(writer, block->n);
    return 0;
}

static uint32_t insert_dataset(sds_trace_writer *writer, const sds__buffer *description,
                               sds__known_dataset *known, const uint64_t hash[2])
{
    const uint32_t n = atomic_load(&writer->n_datasets);
    if (writer->full && n > writer->n_inherited) return n; /* its reads are but counted */
    if (n >= writer->max_datasets || description->n > SDS__BLOCK_MAX_BYTES - 16) return 0;
    const uint32_t id = n + 1;
    atomic_store(&writer->n_datasets, id);
    sds__buffer block = {0};
    put_dataset_block(&block, id, description);
    const int is_kept = !block.failed && keep_description(writer, &block);
    sds__buffer_free(&block);
    if (is_kept) *known = (sds__known_dataset){{hash[0], hash[1]}, id};
    return is_kept || writer->full ? id : 0;
}

uint32_t sds_trace_add_dataset(sds_trace_writer *writer, const sds_trace_dataset *dataset)
{
    if (writer == NULL || dataset->rank < 0 || dataset->rank > SDS_MAX_RANK) return 0;
    sds__buffer description = {0};
    sds__put_dataset(&description, 0, dataset);
    if (description.failed) {
        sds__buffer_free(&description);
        return 0;
    }
    uint64_t hash[2] = {description.n, ~(uint64_t)description.n};
    for (size_t i = 0; i < description.n; i += sizeof(uint64_t)) {
        const size_t left = description.n - i;
        uint64_t word = 0;
        memcpy(&word, description.bytes + i, left < sizeof word ? left : sizeof word);
        hash[0] = sds__mix(hash[0], word);
        hash[1] = sds__mix(hash[1], word + UINT64_C(0xD1B54A32D192ED03));
    }
    uint32_t id = 0;
    if (sds__trace_lock(writer)) {
        sds__known_dataset *known = find_known(writer, hash);
        const int is_known = known->id > writer->n_inherited && known->hash[0] == hash[0] &&
                             known->hash[1] == hash[1];
        id = is_known ? known->id : insert_dataset(writer, &description, known, hash);
        sds__trace_unlock(writer);
    }
    sds__buffer_free(&description);
    return id;
}

/* Write the buffered records, behind the datasets that they are the first to name. */
static void write_records(sds_trace_writer *writer)
{
    if (writer->records.n == 0) return;
    sds__buffer blocks = {0};
    sds__put(&blocks, writer->descriptions.bytes, writer->descriptions.n);
    sds__put_block(&blocks, SDS__BLOCK_RECORDS, writer->records.bytes, writer->records.n);
    if (writer->records.failed) blocks.failed = 1;
    if (append(writer, &blocks, reserve_of(writer))) {
        writer->descriptions.n = 0;
    } else {
        writer->n_dropped += writer->n_reads_buffered;
        note_failure(writer, blocks.n);
    }
    sds__buffer_free(&blocks);
    begin_block(writer);
}

static void write_dropped(sds_trace_writer *writer)
{
    if (writer->n_dropped == writer->n_dropped_written || writer->file.gone) return;
    sds__buffer payload = {0};
    sds__buffer block = {0};
    sds__put_varint(&payload, (uint64_t)writer->n_dropped);
    if (!payload.failed) {
        sds__put_block(&block, SDS__BLOCK_DROPPED, payload.bytes, payload.n);
        if (append(writer, &block, 0)) writer->n_dropped_written = writer->n_dropped;
    }
    sds__buffer_free(&payload);
    sds__buffer_free(&block);
}

/* Count a read that is not recorded; written at every doubling, so that the count survives a kill
 * and stays within the reserve. */
void sds__trace_drop_read(sds_trace_writer *writer)
{
    writer->n_dropped++;
    if ((writer->n_dropped & (writer->n_dropped - 1)) == 0) write_dropped(writer);
}

void sds__trace_emit(void *context, const sds_trace_record *record)
{
    sds_trace_writer *writer = context;
    if (writer->full) {
        writer->n_dropped += record->n_reads;
        return;
    }
    sds__put_record(&writer->coder, &writer->records, record);
    writer->n_reads_buffered += record->n_reads;
    if (writer->records.n >= BLOCK_BYTES || writer->records.failed) write_records(writer);
}

void sds__trace_write(sds_trace_writer *writer)
{
    sds__streams_flush(&writer->streams);
    sds__walks_drain(&writer->walks, sds__trace_emit, writer);
    write_records(writer);
    write_dropped(writer);
}

void sds_trace_flush(sds_trace_writer *writer)
{
    if (writer == NULL) return;
    if (!sds__trace_lock(writer)) return;
    sds__trace_fold_boxes(writer);
    sds__trace_write(writer);
    sds__trace_unlock(writer);
}

const char *sds_trace_writer_path(const sds_trace_writer *writer)
{
    return writer->file.path;
}

void sds_trace_writer_close(sds_trace_writer *writer)
{
    if (writer == NULL) return;
    sds_trace_flush(writer);
    destroy(writer);
}
