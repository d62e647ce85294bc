#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "sds/owner_lock.h"
#include "sds/trace_format.h"
#include "spool_file.h"
#include "trace_fold.h"
#include "trace_layout.h"
#include "trace_walks.h"

#define DEFAULT_FILE_BYTES (INT64_C(64) << 20)
#define DEFAULT_FLUSH_NS (INT64_C(5) * 1000000000)
#define CHILD_FLUSH_NS 20000000
#define BLOCK_BYTES (32 << 10) /* records are written when they fill this */
#define RESERVE_BYTES 4096     /* kept of the cap for the count of reads left out */
#define N_STREAMS 64           /* shapes that fold at the same time */
#define STALE_SHARE 16         /* of an interval: a walk not gone on with for so long may end */
#define N_RECENT 16            /* remembered as the last of a dataset */
#define N_ASIDE 32             /* boxes put aside */
#define ASIDE_TICKS (1U << 22) /* for about so long: a millisecond or four */
#define N_THREADS 256          /* told apart; later ones share the last ordinal */
#define DESCRIPTION_BYTES (32 << 10) /* descriptions are written when they fill this */
#define N_SETS 1024                  /* of datasets that are known again when they are added anew */
#define N_WAYS 4

/* A dataset that was added: equal bytes of its block have an equal hash. */
typedef struct known_dataset {
    uint64_t hash[2];
    uint32_t id; /* of a parent's, or 0: none */
} known_dataset;

typedef struct stream {
    int32_t place; /* among the writer's */
    int64_t used_ns;
    sds__fold fold;
} stream;

/* States of the page that fork wipes. */
enum { WIPED = 0, ALIVE = 1, RENEWING = 2 };

struct sds_trace_writer {
    /* What every read looks at, side by side. */
    sds_owner_lock lock; /* held while a read is recorded, seldom while a file is written */
    _Atomic int *life;   /* zero in the child of a fork */
    int32_t n_aside;
    uint32_t n_inherited; /* ids up to this one were a parent's: its file has what they stand for */
    int full;
    sds_tick_clock clock;
    int64_t interval_ns;      /* of writing, at present: shorter while a child is young */
    int64_t flushed_ns;       /* 0: not yet */
    stream *recent[N_RECENT]; /* by dataset */
    uint32_t n_threads;
    uintptr_t thread[N_THREADS];
    sds__box aside[N_ASIDE];
    sds__walks walks;
    sds_hyperslab slab; /* of the one that is being folded */

    stream *stream[N_STREAMS];
    int32_t n_streams;
    uint64_t hash[N_STREAMS]; /* of each, side by side: of a read in turn all are looked at */
    int32_t newest;           /* the one that was used last */
    int32_t oldest;
    int32_t newer[N_STREAMS]; /* used next after each; not set of the newest */
    int32_t older[N_STREAMS]; /* used next before each; not set of the oldest */
    char *spool_dir;
    char *text; /* the process's strings */
    sds_trace_process process;
    int64_t max_file_bytes;
    int64_t flush_interval_ns;
    sds__spool_file file;

    /* What was written is forgotten, but for the hashes of some: memory has a bound. A fork at any
     * moment leaves ids that were given counted, so that the child takes none of them for its own.
     */
    _Atomic uint32_t n_datasets; /* ids given */
    uint32_t max_datasets;
    known_dataset (*known)[N_WAYS];
    sds__buffer descriptions; /* blocks of datasets, to be written before the records */

    sds__buffer records; /* payload of the block to come */
    sds__record_coder coder;
    int64_t n_reads_buffered;
    int64_t n_dropped;
    int64_t n_dropped_written;
};

static int64_t realtime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
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
    for (int i = 0; i < N_STREAMS; i++)
        free(writer->stream[i]);
    sds__walks_forget(&writer->walks);
    free(writer->known);
    sds__buffer_free(&writer->descriptions);
    sds__buffer_free(&writer->records);
    if (writer->life != NULL) munmap((void *)writer->life, 4096);
    free(writer->spool_dir);
    free(writer->text);
    free(writer);
}

/* One page that the kernel zeroes in a child: the only way to notice a fork that costs a read
 * nothing and works for every kind of fork. Kernels before 4.14 leave it to sds_trace_after_fork.
 */
static _Atomic int *new_life(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    (void)madvise(page, 4096, MADV_WIPEONFORK);
    _Atomic int *life = page;
    atomic_store(life, ALIVE);
    return life;
}

sds_trace_writer *sds_trace_writer_new(const sds_trace_options *options,
                                       const sds_trace_process *process)
{
    if (options == NULL || process == NULL || options->spool_dir == NULL) return NULL;
    sds_trace_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    sds_tick_clock_init(&writer->clock);
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
    writer->known = calloc(N_SETS, sizeof *writer->known);
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

static void lengthen_interval(sds_trace_writer *writer, int64_t interval_ns)
{
    writer->interval_ns =
        interval_ns < writer->flush_interval_ns ? interval_ns : writer->flush_interval_ns;
}

/* Children of a fork often end without their libraries' knowing, by _exit or a signal. They are to
 * lose no more than the last fifth of their lives: the interval between two flushes grows. */
static void renew(sds_trace_writer *writer, int64_t pid)
{
    /* Another thread of the parent may have held it; that thread does not exist here. */
    sds_owner_lock_release(&writer->lock);
    sds_tick_clock_renew(&writer->clock);
    sds__spool_file_free(&writer->file);
    writer->process.pid = pid;
    writer->process.start_ns = realtime_ns();
    sds__spool_file_init(&writer->file, writer->spool_dir, writer->process.host, pid,
                         writer->process.start_ns, writer->max_file_bytes);
    writer->n_inherited = atomic_load(&writer->n_datasets);
    writer->descriptions.n = 0;
    for (int i = 0; i < N_STREAMS; i++)
        if (writer->stream[i] != NULL) writer->stream[i]->fold.n_levels = 0;
    sds__walks_forget(&writer->walks);
    memset(writer->recent, 0, sizeof writer->recent);
    writer->n_threads = 0;
    writer->n_aside = 0;
    begin_block(writer);
    writer->n_dropped = 0;
    writer->n_dropped_written = 0;
    writer->flushed_ns = 0;
    lengthen_interval(writer, CHILD_FLUSH_NS);
    writer->full = 0;
}

void sds_trace_after_fork(sds_trace_writer *writer, int64_t pid)
{
    if (writer == NULL) return;
    atomic_store(writer->life, RENEWING);
    renew(writer, pid);
    atomic_store(writer->life, ALIVE);
}

/* In a child that learns only now that it is one. */
__attribute__((cold, noinline)) static void begin_life(sds_trace_writer *writer)
{
    int life = WIPED;
    if (atomic_compare_exchange_strong(writer->life, &life, RENEWING))
        sds_trace_after_fork(writer, (int64_t)getpid());
    while (atomic_load(writer->life) != ALIVE)
        sched_yield();
}

/* 0 where this very thread holds it: then the writer is left as it is. */
static inline int lock(sds_trace_writer *writer)
{
    if (atomic_load_explicit(writer->life, memory_order_acquire) != ALIVE) begin_life(writer);
    return sds_owner_lock_take(&writer->lock);
}

static void unlock(sds_trace_writer *writer)
{
    sds_owner_lock_release(&writer->lock);
}

/* Where a dataset of this hash is or may be remembered. */
static known_dataset *find_known(const sds_trace_writer *writer, const uint64_t hash[2])
{
    known_dataset *set = writer->known[hash[0] % N_SETS];
    for (int i = 0; i < N_WAYS; i++)
        if (set[i].hash[0] == hash[0] && set[i].hash[1] == hash[1]) return &set[i];
    for (int i = 0; i < N_WAYS; i++)
        if (set[i].id <= writer->n_inherited) return &set[i];
    /* Not the oldest: of datasets that are opened in turn, all would be forgotten in time. */
    return &set[atomic_load(&writer->n_datasets) % N_WAYS];
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
                               known_dataset *known, const uint64_t hash[2])
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
    if (is_kept) *known = (known_dataset){{hash[0], hash[1]}, id};
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
        hash[0] = mix(hash[0], word);
        hash[1] = mix(hash[1], word + UINT64_C(0xD1B54A32D192ED03));
    }
    uint32_t id = 0;
    if (lock(writer)) {
        known_dataset *known = find_known(writer, hash);
        const int is_known = known->id > writer->n_inherited && known->hash[0] == hash[0] &&
                             known->hash[1] == hash[1];
        id = is_known ? known->id : insert_dataset(writer, &description, known, hash);
        unlock(writer);
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

static void emit_record(void *context, const sds_trace_record *record)
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

static void flush(sds_trace_writer *writer)
{
    for (int i = 0; i < N_STREAMS; i++)
        if (writer->stream[i] != NULL) sds__fold_flush(&writer->stream[i]->fold);
    sds__walks_drain(&writer->walks, emit_record, writer);
    write_records(writer);
    write_dropped(writer);
}

static uint32_t thread_ordinal(sds_trace_writer *writer, uintptr_t thread)
{
    for (uint32_t i = 0; i < writer->n_threads; i++)
        if (writer->thread[i] == thread) return i;
    if (writer->n_threads == N_THREADS) return N_THREADS - 1;
    writer->thread[writer->n_threads] = thread;
    return writer->n_threads++;
}

/* A read that is being added; its selection is the caller's. */
typedef struct added_read {
    uint32_t dataset;
    uint32_t thread;
    int32_t kind;
    int32_t collective;
    int64_t n_elements;
    int64_t served_by;
    const sds_hyperslab *slab;
    int64_t start_ns;
    int64_t elapsed_ns;
} added_read;

static void take_shape(const added_read *read, sds__shape *shape)
{
    const sds_hyperslab *slab = read->slab;
    *shape = (sds__shape){.dataset = read->dataset,
                          .thread = read->thread,
                          .kind = read->kind,
                          .rank = slab->rank,
                          .n_elements = read->n_elements,
                          .served_by = read->served_by,
                          .collective = read->collective};
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        shape->axis[axis].stride = slab->stride[axis];
        shape->axis[axis].count = slab->count[axis];
        shape->axis[axis].block = slab->block[axis];
    }
}

static uint64_t shape_hash(const added_read *read)
{
    const sds_hyperslab *slab = read->slab;
    uint64_t hash = mix((uint64_t)read->dataset << 32 | read->thread, (uint64_t)read->n_elements);
    hash = mix(hash, (uint64_t)read->served_by);
    hash = mix(hash, (uint64_t)read->kind << 32 | (uint64_t)read->collective << 16 |
                         (uint64_t)slab->rank);
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        hash = mix(hash, (uint64_t)slab->stride[axis]);
        hash = mix(hash, (uint64_t)slab->count[axis]);
        hash = mix(hash, (uint64_t)slab->block[axis]);
    }
    return hash;
}

static int is_of_shape(const sds__shape *shape, const added_read *read)
{
    const sds_hyperslab *slab = read->slab;
    if (shape->dataset != read->dataset || shape->thread != read->thread ||
        shape->kind != read->kind || shape->rank != slab->rank ||
        shape->n_elements != read->n_elements || shape->served_by != read->served_by ||
        shape->collective != read->collective)
        return 0;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        if (shape->axis[axis].stride != slab->stride[axis] ||
            shape->axis[axis].count != slab->count[axis] ||
            shape->axis[axis].block != slab->block[axis])
            return 0;
    return 1;
}

/* Of several streams. */
static void move_to_front(sds_trace_writer *writer, int32_t place)
{
    if (place == writer->newest) return;
    if (place == writer->oldest) {
        writer->oldest = writer->newer[place];
    } else {
        writer->newer[writer->older[place]] = writer->newer[place];
        writer->older[writer->newer[place]] = writer->older[place];
    }
    writer->newer[writer->newest] = place;
    writer->older[place] = writer->newest;
    writer->newest = place;
}

/* A stream more, the newest; NULL where memory is exhausted. */
static stream *add_stream(sds_trace_writer *writer, uint64_t hash)
{
    stream *added = calloc(1, sizeof *added);
    if (added == NULL) return NULL;
    const int32_t place = writer->n_streams++;
    added->place = place;
    writer->stream[place] = added;
    writer->hash[place] = hash;
    if (place > 0) {
        writer->newer[writer->newest] = place;
        writer->older[place] = writer->newest;
    }
    writer->newest = place;
    return added;
}

/* The stream of this shape, empty or not; NULL where there is none. */
static stream *find_stream(const sds_trace_writer *writer, const added_read *read)
{
    stream *recent = writer->recent[read->dataset % N_RECENT];
    if (recent != NULL && is_of_shape(&recent->fold.shape, read)) return recent;
    if (writer->n_streams == 0) return NULL;
    const uint64_t hash = shape_hash(read);
    for (int32_t i = 0; i < writer->n_streams; i++)
        if (writer->hash[i] == hash && is_of_shape(&writer->stream[i]->fold.shape, read))
            return writer->stream[i];
    return NULL;
}

/* One that is free, or the one not used for longest, emptied. Several streams fold at once because
 * programs read several datasets in turn. NULL where memory is exhausted. */
static stream *take_stream(sds_trace_writer *writer, const added_read *read)
{
    const uint64_t hash = shape_hash(read);
    if (writer->n_streams < N_STREAMS) return add_stream(writer, hash);
    stream *oldest = writer->stream[writer->oldest];
    sds__fold_flush(&oldest->fold);
    writer->hash[oldest->place] = hash;
    return oldest;
}

/* Whether one is free, or was not used for as long as a walk. */
static int may_take_stream(const sds_trace_writer *writer, const sds__walk *walk)
{
    if (writer->n_streams < N_STREAMS) return 1;
    const stream *oldest = writer->stream[writer->oldest];
    return oldest->fold.n_levels == 0 || oldest->used_ns < sds__walk_last_ns(&writer->walks, walk);
}

static void fold_read(sds_trace_writer *writer, stream *of, const added_read *read)
{
    const sds__fold_read folded = {read->slab->start, read->start_ns, read->elapsed_ns};
    if (of->fold.n_levels > 0) {
        sds__fold_add(&of->fold, &folded);
        return;
    }
    sds__shape shape;
    take_shape(read, &shape);
    sds__fold_begin(&of->fold, &shape, &folded, emit_record, writer);
}

/* Count a read that is not recorded; written at every doubling, so that the count survives a kill
 * and stays within the reserve. */
static void drop_read(sds_trace_writer *writer)
{
    writer->n_dropped++;
    if ((writer->n_dropped & (writer->n_dropped - 1)) == 0) write_dropped(writer);
}

/* 0 where the read's dataset has to be added again, in the child of a fork. */
static int is_added(const sds_trace_writer *writer, uint32_t dataset)
{
    return dataset > writer->n_inherited || dataset == 0;
}

/* False where the read was dropped. */
static int may_record(sds_trace_writer *writer, uint32_t dataset)
{
    if (dataset > atomic_load(&writer->n_datasets)) return 0;
    if (!writer->full && dataset != 0) return 1;
    drop_read(writer);
    return 0;
}

/* The reads' own times serve as the clock; it may be set back. */
static inline int is_due(const sds_trace_writer *writer, int64_t start_ns)
{
    const int64_t since_ns = sds__wrap_sub(start_ns, writer->flushed_ns);
    return since_ns >= writer->interval_ns || since_ns < 0;
}

static void flush_when_due(sds_trace_writer *writer, int64_t start_ns)
{
    if (!is_due(writer, start_ns)) return;
    if (writer->flushed_ns != 0) {
        flush(writer);
        lengthen_interval(writer, writer->interval_ns + writer->interval_ns / 4);
    }
    writer->flushed_ns = start_ns;
}

/* Add a read to the stream of its shape. */
static stream *add_to_stream(sds_trace_writer *writer, stream *of, const added_read *read)
{
    fold_read(writer, of, read);
    of->used_ns = read->start_ns;
    move_to_front(writer, of->place);
    writer->recent[read->dataset % N_RECENT] = of;
    flush_when_due(writer, read->start_ns);
    return of;
}

/* Return the stream that the read went to; NULL where there is none. */
static stream *add_read(sds_trace_writer *writer, const added_read *read)
{
    stream *of = find_stream(writer, read);
    if (of == NULL) of = take_stream(writer, read);
    if (of != NULL) return add_to_stream(writer, of, read);
    writer->n_dropped++;
    return NULL;
}

/* Whether two boxes differ in place and time alone. */
static int is_like(const sds__box *box, const sds__box *other)
{
    if (box->dataset != other->dataset || box->rank != other->rank || box->kind != other->kind ||
        box->thread != other->thread || box->served_by != other->served_by ||
        box->collective != other->collective)
        return 0;
    for (int32_t axis = 0; axis < box->rank; axis++)
        if (box->count[axis] != other->count[axis]) return 0;
    return 1;
}

static sds_tick_span span_of(const sds__box *box)
{
    return (sds_tick_span){box->begin, box->end, box->counts};
}

/* Count a box like the one before it, which went to this stream, where no more is to be done:
 * nearly every one. 0 where it is not so simple. */
static int step(sds_trace_writer *writer, stream *of, const sds__box *box)
{
    const sds_tick_span span = span_of(box);
    sds__fold_read read = {.start = box->start};
    return sds_tick_clock_try(&writer->clock, &span, &read.start_ns, &read.elapsed_ns) &&
           !is_due(writer, read.start_ns) && sds__fold_step(&of->fold, &read);
}

static void take_slab(const sds__box *box, sds_hyperslab *slab, added_read *read)
{
    slab->rank = box->rank;
    read->n_elements = 1;
    for (int32_t axis = 0; axis < box->rank; axis++) {
        slab->start[axis] = box->start[axis];
        slab->stride[axis] = slab->block[axis] = 1;
        slab->count[axis] = box->count[axis];
        read->n_elements *= slab->count[axis];
    }
    read->slab = slab;
}

/* A walk's next read is none of its steps: it goes on as a stream that has what it had, or, where
 * all streams are of more use to others, is written and begins anew. Return that stream; or NULL,
 * and whether it has begun. */
static stream *leave_walk(sds_trace_writer *writer, sds__walk *walk, const added_read *read,
                          const sds__walk_read *next, int *has_begun)
{
    sds_trace_record record;
    stream *of = may_take_stream(writer, walk) ? take_stream(writer, read) : NULL;
    sds__walk_tell(&writer->walks, walk, &record);
    if (of == NULL) {
        emit_record(writer, &record);
        *has_begun = sds__walk_begin(&writer->walks, walk, next);
        return NULL;
    }
    walk->key = 0;
    sds__fold_resume(&of->fold, &record, emit_record, writer);
    return of;
}

static void emit_walk(sds_trace_writer *writer, const sds__walk *walk)
{
    sds_trace_record record;
    sds__walk_tell(&writer->walks, walk, &record);
    emit_record(writer, &record);
}

/* Begin a walk, or write its read alone. 0 where neither can be. */
static int begin_walk(sds_trace_writer *writer, const sds__walk_read *read)
{
    const int64_t stale_ns = sds__wrap_sub(read->start_ns, writer->interval_ns / STALE_SHARE);
    sds__walk *walk = sds__walks_make_room(&writer->walks, read, stale_ns);
    if (walk != NULL && walk->key != 0) emit_walk(writer, walk);
    if (walk != NULL) return sds__walk_begin(&writer->walks, walk, read);
    sds__walk alone;
    if (writer->walks.place == NULL || !sds__walk_begin(&writer->walks, &alone, read)) return 0;
    emit_walk(writer, &alone);
    return 1;
}

/* The same for a box that no walk steps to. walk: that of its shape, or NULL; walked: NULL where it
 * cannot have one. */
__attribute__((noinline)) static stream *fold_box(sds_trace_writer *writer, const sds__box *box,
                                                  added_read *read, sds__walk *walk,
                                                  const sds__walk_read *walked)
{
    stream *of;
    int is_walked = 0;
    take_slab(box, &writer->slab, read);
    if (walk != NULL) {
        of = leave_walk(writer, walk, read, walked, &is_walked);
    } else {
        of = find_stream(writer, read);
        if (of == NULL && walked != NULL) is_walked = begin_walk(writer, walked);
    }
    if (of != NULL) return add_to_stream(writer, of, read);
    if (!is_walked) return add_read(writer, read);
    flush_when_due(writer, read->start_ns);
    return NULL;
}

/* Return the stream that the box went to; NULL where it is a walk, or was dropped. */
static stream *add_box(sds_trace_writer *writer, const sds__box *box, int64_t start_ns,
                       int64_t elapsed_ns)
{
    if (!may_record(writer, box->dataset)) return NULL;
    sds__walk_read walked = {.start_ns = start_ns, .elapsed_ns = elapsed_ns};
    added_read read = {.dataset = box->dataset,
                       .thread = thread_ordinal(writer, box->thread),
                       .kind = box->kind,
                       .collective = box->collective,
                       .served_by = box->served_by,
                       .start_ns = start_ns,
                       .elapsed_ns = elapsed_ns};
    if (!sds__walk_take_box(box, read.thread, &walked))
        return fold_box(writer, box, &read, NULL, NULL);
    sds__walk *walk = sds__walks_find(&writer->walks, &walked);
    if (walk == NULL || !sds__walk_step(&writer->walks, walk, &walked))
        return fold_box(writer, box, &read, walk, &walked);
    flush_when_due(writer, start_ns);
    return NULL;
}

__attribute__((hot, noinline)) static void fold_boxes(sds_trace_writer *writer)
{
    stream *of = NULL;
    for (int32_t i = 0; i < writer->n_aside; i++)
        sds__walks_expect(&writer->walks, writer->aside[i].dataset);
    for (int32_t i = 0; i < writer->n_aside; i++) {
        const sds__box *box = &writer->aside[i];
        if (of != NULL && is_like(box, box - 1) && step(writer, of, box)) continue;
        const sds_tick_span span = span_of(box);
        int64_t start_ns, elapsed_ns;
        if (!sds_tick_clock_try(&writer->clock, &span, &start_ns, &elapsed_ns))
            sds_tick_clock_convert(&writer->clock, &span, &start_ns, &elapsed_ns);
        of = add_box(writer, box, start_ns, elapsed_ns);
    }
    /* So many within so short a time: then it counts what a look at the clock costs. */
    if (writer->n_aside == N_ASIDE) sds_tick_clock_use_counter(&writer->clock);
    writer->n_aside = 0;
}

/* False where it is none: of more axes, or with gaps. */
static int take_box(const added_read *read, uintptr_t thread, sds__box *box)
{
    const sds_hyperslab *slab = read->slab;
    int64_t n_elements = 1;
    if ((read->kind != SDS_SELECT_ALL && read->kind != SDS_SELECT_HYPERSLAB) ||
        slab->rank > SDS_TRACE_BOX_RANK)
        return 0;
    box->dataset = read->dataset;
    box->rank = (int8_t)slab->rank;
    box->kind = (int8_t)read->kind;
    box->collective = (int8_t)read->collective;
    box->served_by = read->served_by;
    box->thread = thread;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        int64_t last;
        if (slab->stride[axis] != 1 || slab->block[axis] != 1 || slab->count[axis] < 0 ||
            __builtin_add_overflow(slab->start[axis], slab->count[axis] - 1, &last) ||
            __builtin_mul_overflow(n_elements, slab->count[axis], &n_elements))
            return 0;
        box->start[axis] = slab->start[axis];
        box->count[axis] = slab->count[axis];
    }
    return n_elements == read->n_elements;
}

static int is_rank(int32_t rank)
{
    return rank >= 0 && rank <= SDS_MAX_RANK;
}

static void add_at_once(sds_trace_writer *writer, added_read *read)
{
    const uintptr_t self = sds_this_thread();
    sds__box box;
    if (take_box(read, self, &box)) {
        add_box(writer, &box, read->start_ns, read->elapsed_ns);
    } else if (may_record(writer, read->dataset)) {
        read->thread = thread_ordinal(writer, self);
        add_read(writer, read);
    }
}

/* span: by which the read was timed; NULL where its times are known. */
static int add_whole(sds_trace_writer *writer, added_read *read, const sds_tick_span *span)
{
    if (!lock(writer)) return 1;
    const int added = is_added(writer, read->dataset);
    if (added) {
        fold_boxes(writer);
        if (span != NULL)
            sds_tick_clock_convert(&writer->clock, span, &read->start_ns, &read->elapsed_ns);
        add_at_once(writer, read);
    }
    unlock(writer);
    return added;
}

int sds_trace_add_read(sds_trace_writer *writer, const sds_trace_read *read)
{
    if (writer == NULL || !is_rank(read->slab.rank)) return 1;
    added_read added = {.dataset = read->dataset,
                        .kind = read->kind,
                        .collective = read->collective != 0,
                        .n_elements = read->n_elements,
                        .served_by = read->served_by,
                        .slab = &read->slab,
                        .start_ns = read->start_ns,
                        .elapsed_ns = read->elapsed_ns};
    return add_whole(writer, &added, NULL);
}

int sds_trace_add_timed_read(sds_trace_writer *writer, const sds_trace_timed_read *read)
{
    if (writer == NULL || !is_rank(read->slab->rank)) return 1;
    added_read added = {.dataset = read->dataset,
                        .kind = read->kind,
                        .collective = read->collective != 0,
                        .n_elements = read->n_elements,
                        .served_by = read->served_by,
                        .slab = read->slab};
    return add_whole(writer, &added, &read->span);
}

/* Where reads are slow, each is folded at once: what waits may be lost. */
static int is_enough(const sds_trace_writer *writer, const sds__box *latest)
{
    return writer->n_aside == N_ASIDE || latest->end - writer->aside[0].begin > ASIDE_TICKS;
}

/* Field by field: what axes there are not need not be copied. */
static inline void copy_box(const sds_trace_box *box, uintptr_t thread, sds__box *out)
{
    out->dataset = box->dataset;
    out->rank = box->rank;
    out->kind = box->kind;
    out->collective = box->collective;
    out->counts = box->counts;
    out->begin = box->begin;
    out->end = box->end;
    out->served_by = box->served_by;
    out->thread = thread;
    for (int32_t axis = 0; axis < box->rank; axis++) {
        out->start[axis] = box->first[axis];
        out->count[axis] = box->last[axis] - box->first[axis] + 1;
    }
}

__attribute__((hot)) int sds_trace_add_box(sds_trace_writer *writer, const sds_trace_box *box)
{
    if (writer == NULL || (uint8_t)box->rank > SDS_TRACE_BOX_RANK || !lock(writer)) return 1;
    if (__builtin_expect(!is_added(writer, box->dataset), 0)) {
        unlock(writer);
        return 0;
    }
    sds__box *aside = &writer->aside[writer->n_aside++];
    copy_box(box, sds_owner_lock_owner(&writer->lock), aside);
    if (is_enough(writer, aside)) fold_boxes(writer);
    unlock(writer);
    return 1;
}

const sds_tick_clock *sds_trace_clock(const sds_trace_writer *writer)
{
    return &writer->clock;
}

void sds_trace_flush(sds_trace_writer *writer)
{
    if (writer == NULL) return;
    if (!lock(writer)) return;
    fold_boxes(writer);
    flush(writer);
    unlock(writer);
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
