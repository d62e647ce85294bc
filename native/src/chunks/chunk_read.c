/* Chunks are read in windows, in file order. While helpers undo the filters of one window's chunks,
 * the calling thread reads the next one, and then helps; where reading waits for the device, it
 * reads on instead. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "chunk_copy.h"
#include "sds/read_engine.h"

/* What is read at a time. The filters of one window are undone while the next one is read: where
 * that waits for the device, short ones overlap from earlier on. But every thread has a chunk. */
#define WINDOW_BYTES (INT64_C(16) << 20)
#define COLD_WINDOW_BYTES (INT64_C(2) << 20)
#define PROBED_CHUNKS 16
#define WINDOW_CHUNKS 4096
#define WINDOW_PIECES (1 << 16)
#define MAX_THREADS 64
#define SCRATCH_BYTES (256 << 20) /* of all threads, where each needs less than all of it */
/* Less than this a thread, and starting one (tens of microseconds) gains nothing. */
#define THREAD_BYTES (128 << 10)
/* A filter may make a chunk larger; no filter doubles one, and then some. */
#define MAX_GROWTH_BYTES (1 << 20)
#define CHECKSUMS_BYTES (4 * SDS_MAX_FILTERS)
/* Of chunks without filters: where this much of a chunk is selected, in shorter runs, it is read
 * whole and the runs are copied. */
#define WHOLE_SHARE 4
#define WHOLE_RUN_BYTES (4 << 10)

typedef struct {
    uint8_t *bytes;
    size_t capacity;
    sds_piece *piece; /* of chunk first + i */
    size_t first;
    size_t n;
} window;

typedef struct {
    const sds__chunk_selection *selection;
    sds_file *file;
    uint8_t *out;
    int64_t window_bytes;
    size_t scratch_bytes; /* of one of the two buffers of a thread */
    int only_reads;       /* the calling thread: helpers undo all filters */
    window window[2];
    sds_chunked_report report;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t opened;
    pthread_cond_t finished;
    const window *open; /* whose chunks are being decoded */
    size_t next;        /* chunk of it */
    size_t unfinished;  /* chunks of it */
    int closing;
    sds_status status;
} reading;

/* What a thread decodes into. */
typedef struct {
    uint8_t *bytes[2];
    void *state[SDS_MAX_FILTERS]; /* of the filters */
} scratch;

static sds_status fetch(reading *self, size_t n, const sds_piece pieces[], uint8_t *to)
{
    if (n == 0) return SDS_OK;
    sds_read_report report;
    const sds_status status = sds_read_pieces(self->file, n, pieces, NULL, to, &report);
    if (status != SDS_OK) return status;
    self->report.requests += report.requests;
    self->report.bytes_read += report.bytes_read;
    return SDS_OK;
}

static int is_filtered(const reading *self, size_t chunk)
{
    const sds_chunked_dataset *dataset = self->selection->dataset;
    if (!dataset->edges_unfiltered) return 1;
    const int64_t *index = self->selection->chunks->index + chunk * (size_t)dataset->rank;
    for (int32_t k = 0; k < dataset->rank; k++)
        if (index[k] >= dataset->extent[k] / dataset->chunk[k]) return 0;
    return 1;
}

static sds_status reserve(const reading *self, scratch *own, int which)
{
    if (own->bytes[which] == NULL) own->bytes[which] = malloc(self->scratch_bytes);
    return own->bytes[which] == NULL ? SDS_ENOMEM : SDS_OK;
}

/* Undo the filters of a chunk, the last of them into `last` if that is not NULL.
 * elements: where they are then. */
static sds_status decode(const reading *self, size_t chunk, const sds_piece *stored,
                         const uint8_t *bytes, scratch *own, uint8_t *last,
                         const uint8_t **elements)
{
    const sds_chunked_dataset *dataset = self->selection->dataset;
    const size_t chunk_bytes = (size_t)self->selection->chunk_bytes;
    uint32_t skipped = self->selection->chunks->skipped[chunk];
    if (!is_filtered(self, chunk)) skipped = UINT32_MAX;
    size_t n = (size_t)stored->length;
    const uint8_t *at = bytes + stored->position;
    for (int32_t k = dataset->n_filters - 1; k >= 0; k--) {
        const sds_filter *filter = &dataset->filter[k];
        if (skipped >> k & 1) continue;
        const uint32_t before = (UINT32_C(1) << k) - 1;
        const int is_last = (~skipped & before) == 0;
        uint8_t *to = is_last ? last : NULL;
        size_t capacity = to == NULL ? self->scratch_bytes : chunk_bytes;
        if (to == NULL) {
            const int which = at == own->bytes[0];
            const sds_status status = reserve(self, own, which);
            if (status != SDS_OK) return status;
            to = own->bytes[which];
        }
        if (own->state[k] == NULL) own->state[k] = sds_filter_begin(filter);
        const sds_status status = sds_filter_undo(filter, own->state[k], at, n, to, capacity, &n);
        if (status != SDS_OK) return status;
        at = to;
    }
    *elements = at;
    return n == chunk_bytes ? SDS_OK : SDS_EFORMAT;
}

/* Put what is selected of a chunk, of which there are the stored bytes, into its places. */
static sds_status place(const reading *self, size_t chunk, const sds_piece *stored,
                        const uint8_t *bytes, scratch *own)
{
    const sds__chunk_selection *selection = self->selection;
    uint8_t *to = NULL;
    if (selection->chunks->kept != NULL) {
        to = selection->chunks->kept[chunk];
    } else {
        const sds__chunk_share share = sds__chunk_selected(selection, chunk);
        if (share.bytes == 0) return SDS_OK;
        if (share.run_bytes == selection->chunk_bytes) to = self->out + share.position;
    }
    const uint8_t *elements;
    const sds_status status = decode(self, chunk, stored, bytes, own, to, &elements);
    if (status != SDS_OK) return status;
    if (selection->chunks->kept != NULL && elements != to)
        memcpy(to, elements, (size_t)selection->chunk_bytes);
    if (selection->chunks->kept != NULL || elements != to)
        sds__chunk_copy(selection, chunk, elements, self->out);
    return SDS_OK;
}

/* Decode chunks of the open window until none is left. The lock is held. */
static void decode_open(reading *self, scratch *own)
{
    while (self->open != NULL && self->next < self->open->n) {
        const window *open = self->open;
        const size_t i = self->next++;
        sds_status status = self->status;
        pthread_mutex_unlock(&self->lock);
        if (status == SDS_OK)
            status = place(self, open->first + i, &open->piece[i], open->bytes, own);
        pthread_mutex_lock(&self->lock);
        if (self->status == SDS_OK) self->status = status;
        if (--self->unfinished == 0) pthread_cond_signal(&self->finished);
    }
}

static void scratch_free(const reading *self, scratch *own)
{
    const sds_chunked_dataset *dataset = self->selection->dataset;
    for (int32_t k = 0; k < dataset->n_filters; k++)
        sds_filter_end(&dataset->filter[k], own->state[k]);
    free(own->bytes[0]);
    free(own->bytes[1]);
}

static void *help(void *argument)
{
    reading *self = argument;
    scratch own = {{NULL, NULL}, {NULL}};
    pthread_mutex_lock(&self->lock);
    while (!self->closing) {
        decode_open(self, &own);
        if (!self->closing) pthread_cond_wait(&self->opened, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    scratch_free(self, &own);
    return NULL;
}

/* Read the window that begins with a chunk. */
static sds_status read_window(reading *self, window *into, size_t first)
{
    const sds_chunk_list *chunks = self->selection->chunks;
    int64_t n_bytes = 0;
    into->first = first;
    into->n = 0;
    for (size_t i = first; i < chunks->n && into->n < WINDOW_CHUNKS; i++) {
        if (into->n > 0 && chunks->size[i] > self->window_bytes - n_bytes) break;
        into->piece[into->n++] = (sds_piece){chunks->offset[i], chunks->size[i], n_bytes};
        n_bytes += chunks->size[i];
    }
    if ((size_t)n_bytes > into->capacity) {
        free(into->bytes);
        into->bytes = malloc((size_t)n_bytes);
        into->capacity = into->bytes == NULL ? 0 : (size_t)n_bytes;
        if (into->bytes == NULL) return SDS_ENOMEM;
    }
    self->report.chunks += (int64_t)into->n;
    return fetch(self, into->n, into->piece, into->bytes);
}

/* Help with the open window until it is done; what came out of it. */
static sds_status finish_open(reading *self, scratch *own)
{
    pthread_mutex_lock(&self->lock);
    if (!self->only_reads) decode_open(self, own);
    while (self->unfinished > 0)
        pthread_cond_wait(&self->finished, &self->lock);
    self->open = NULL;
    const sds_status status = self->status;
    pthread_mutex_unlock(&self->lock);
    return status;
}

static void open_window(reading *self, const window *read)
{
    pthread_mutex_lock(&self->lock);
    self->open = read;
    self->next = 0;
    self->unfinished = read->n;
    pthread_cond_broadcast(&self->opened);
    pthread_mutex_unlock(&self->lock);
}

static sds_status read_and_decode(reading *self)
{
    scratch own = {{NULL, NULL}, {NULL}};
    sds_status status = SDS_OK;
    size_t n_windows = 0;
    for (size_t first = 0; status == SDS_OK && first < self->selection->chunks->n; n_windows++) {
        window *next = &self->window[n_windows % 2];
        status = read_window(self, next, first);
        const sds_status before = finish_open(self, &own);
        if (status == SDS_OK) status = before;
        if (status == SDS_OK) open_window(self, next);
        first += next->n;
    }
    const sds_status last = finish_open(self, &own);
    scratch_free(self, &own);
    return status == SDS_OK ? last : status;
}

/* Start helpers with every signal blocked: a handler of the program runs in its own threads. */
static int32_t start_helpers(reading *self, pthread_t helper[], int32_t n)
{
    sigset_t all, before;
    int32_t started = 0;
    if (n <= 0) return 0;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return 0;
    while (started < n && pthread_create(&helper[started], NULL, help, self) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static sds_status read_with_helpers(reading *self, int32_t n_threads)
{
    pthread_t helper[MAX_THREADS];
    if (pthread_mutex_init(&self->lock, NULL) != 0) return SDS_ENOMEM;
    if (pthread_cond_init(&self->opened, NULL) != 0) goto without_opened;
    if (pthread_cond_init(&self->finished, NULL) != 0) goto without_finished;
    const int32_t started =
        start_helpers(self, helper, self->only_reads ? n_threads : n_threads - 1);
    self->only_reads = self->only_reads && started > 1;
    self->report.threads = self->only_reads ? started : 1 + started;
    const sds_status status = read_and_decode(self);
    pthread_mutex_lock(&self->lock);
    self->closing = 1;
    pthread_cond_broadcast(&self->opened);
    pthread_mutex_unlock(&self->lock);
    for (int32_t i = 0; i < started; i++)
        pthread_join(helper[i], NULL);
    pthread_cond_destroy(&self->finished);
    pthread_cond_destroy(&self->opened);
    pthread_mutex_destroy(&self->lock);
    return status;

without_finished:
    pthread_cond_destroy(&self->opened);
without_opened:
    pthread_mutex_destroy(&self->lock);
    return SDS_ENOMEM;
}

static int is_cached(const reading *self)
{
    const sds_chunk_list *chunks = self->selection->chunks;
    sds_piece some[PROBED_CHUNKS];
    const size_t n = chunks->n < PROBED_CHUNKS ? chunks->n : PROBED_CHUNKS;
    for (size_t i = 0; i < n; i++) {
        const size_t chunk = chunks->n / n * i;
        some[i] = (sds_piece){chunks->offset[chunk], chunks->size[chunk], 0};
    }
    return sds_probe_pieces(self->file, n, some) == SDS_CACHE_WARM;
}

/* Short windows and a thread that only reads, where the device has to be waited for. */
static void choose_window(reading *self, int64_t n_threads)
{
    const sds_chunk_list *chunks = self->selection->chunks;
    int64_t all = 0, longest = COLD_WINDOW_BYTES / n_threads;
    for (size_t i = 0; i < chunks->n && all <= WINDOW_BYTES; i++) {
        all += chunks->size[i];
        longest = sds__greatest(longest, chunks->size[i]);
    }
    self->only_reads = n_threads > 1 && all > COLD_WINDOW_BYTES && !is_cached(self);
    self->window_bytes =
        self->only_reads ? sds__least(longest, WINDOW_BYTES / n_threads) * n_threads : WINDOW_BYTES;
}

static sds_status read_whole_chunks(reading *self, int32_t n_threads)
{
    const sds_chunked_dataset *dataset = self->selection->dataset;
    const int64_t chunk_bytes = self->selection->chunk_bytes;
    const size_t n = self->selection->chunks->n;
    int n_sizing = 0; /* filters after which a size is not known beforehand */
    for (int32_t k = 0; k < dataset->n_filters; k++)
        n_sizing += dataset->filter[k].codec > SDS_CODEC_FLETCHER32;
    int64_t scratch_bytes = chunk_bytes;
    if (n_sizing > 1 && __builtin_mul_overflow(chunk_bytes, 2, &scratch_bytes))
        return SDS_EOVERFLOW;
    if (__builtin_add_overflow(scratch_bytes, n_sizing > 1 ? MAX_GROWTH_BYTES : CHECKSUMS_BYTES,
                               &scratch_bytes))
        return SDS_EOVERFLOW;
    self->scratch_bytes = (size_t)scratch_bytes;
    const int64_t n_for_thread = sds__divide_up(THREAD_BYTES, chunk_bytes);
    const int64_t enough = (int64_t)n / n_for_thread;
    const int64_t affordable = SCRATCH_BYTES / 2 / scratch_bytes;
    int64_t threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    if (threads > affordable) threads = affordable;
    if (threads > enough) threads = enough;
    if (threads > (int64_t)n) threads = (int64_t)n;
    if (self->window_bytes <= 0) choose_window(self, sds__greatest(threads, 1));
    const size_t most = n < WINDOW_CHUNKS ? n : WINDOW_CHUNKS;
    sds_status status = SDS_ENOMEM;
    self->window[0].piece = malloc(most * sizeof(sds_piece));
    self->window[1].piece = malloc(most * sizeof(sds_piece));
    if (self->window[0].piece != NULL && self->window[1].piece != NULL)
        status = read_with_helpers(self, (int32_t)threads);
    self->report.memory_bytes =
        (int64_t)(self->window[0].capacity + self->window[1].capacity +
                  2 * most * sizeof(sds_piece)) +
        (dataset->n_filters > 0 ? 2 * (int64_t)self->scratch_bytes * self->report.threads : 0);
    for (int i = 0; i < 2; i++) {
        free(self->window[i].bytes);
        free(self->window[i].piece);
    }
    return status;
}

/* Read what is selected of chunks without filters, right into its places. */
static sds_status read_selected_bytes(reading *self)
{
    const size_t n = self->selection->chunks->n;
    size_t max = WINDOW_PIECES, n_pieces = 0;
    sds_piece *pieces = malloc(max * sizeof *pieces);
    sds_status status = pieces == NULL ? SDS_ENOMEM : SDS_OK;
    for (size_t i = 0; i < n && status == SDS_OK;) {
        const size_t more =
            sds__chunk_pieces(self->selection, i, max - n_pieces, pieces + n_pieces);
        if (more <= max - n_pieces) {
            n_pieces += more;
            i++;
            continue;
        }
        status = fetch(self, n_pieces, pieces, self->out);
        n_pieces = 0;
        if (more > max) {
            free(pieces);
            pieces = malloc(more * sizeof *pieces);
            if (pieces == NULL) status = SDS_ENOMEM;
            max = more;
        }
    }
    if (status == SDS_OK) status = fetch(self, n_pieces, pieces, self->out);
    self->report.memory_bytes = (int64_t)(max * sizeof *pieces);
    self->report.threads = 1;
    free(pieces);
    return status;
}

/* Whether reading chunks whole costs less than reading what is selected of them. */
static int is_better_whole(const sds__chunk_selection *selection)
{
    if (selection->dataset->n_filters > 0 || selection->chunks->kept != NULL) return 1;
    const sds__chunk_share share = sds__chunk_selected(selection, selection->chunks->n / 2);
    return share.run_bytes < WHOLE_RUN_BYTES && share.bytes > selection->chunk_bytes / WHOLE_SHARE;
}

static sds_status check_chunks(const sds__chunk_selection *selection)
{
    const sds_chunk_list *chunks = selection->chunks;
    const sds_chunked_dataset *dataset = selection->dataset;
    if (dataset->n_filters < 0 || dataset->n_filters > SDS_MAX_FILTERS) return SDS_EINVAL;
    int64_t most, end = 0; /* of the chunk before */
    if (__builtin_mul_overflow(selection->chunk_bytes, 2, &most) ||
        __builtin_add_overflow(most, MAX_GROWTH_BYTES, &most))
        return SDS_EOVERFLOW;
    for (size_t i = 0; i < chunks->n; i++) {
        if (chunks->size[i] < 1 || chunks->offset[i] < (i == 0 ? 0 : chunks->offset[i - 1]))
            return SDS_EINVAL;
        if (chunks->offset[i] < end) return SDS_EFORMAT;
        if (__builtin_add_overflow(chunks->offset[i], chunks->size[i], &end)) return SDS_EOVERFLOW;
        if (chunks->size[i] > most) return SDS_EFORMAT;
        if (dataset->n_filters == 0 && chunks->size[i] != selection->chunk_bytes)
            return SDS_EFORMAT;
    }
    return SDS_OK;
}

sds_status sds_read_chunks(sds_file *file, const sds_chunked_dataset *dataset,
                           const sds_axis_spans axis[], const sds_chunk_points *points,
                           const sds_chunk_list *chunks, const sds_chunked_options *options,
                           void *out, sds_chunked_report *report)
{
    static const sds_chunked_options defaults = {0};
    if (options == NULL) options = &defaults;
    sds__chunk_selection selection;
    reading self = {
        .selection = &selection,
        .file = file,
        .out = out,
        .window_bytes = options->window_bytes,
        .status = SDS_OK,
    };
    sds_status status = sds__chunk_selection_init(&selection, dataset, axis, points, chunks);
    if (status == SDS_OK) status = check_chunks(&selection);
    if (status == SDS_OK && chunks->n > 0) {
        if (is_better_whole(&selection))
            status = read_whole_chunks(&self, options->n_threads > 1 ? options->n_threads : 1);
        else
            status = read_selected_bytes(&self);
    }
    if (report != NULL) *report = self.report;
    return status;
}

sds_status sds_copy_chunks(const sds_chunked_dataset *dataset, const sds_axis_spans axis[],
                           const sds_chunk_points *points, const sds_chunk_list *chunks, void *out)
{
    sds__chunk_selection selection;
    const sds_status status = sds__chunk_selection_init(&selection, dataset, axis, points, chunks);
    if (status != SDS_OK) return status;
    for (size_t i = 0; i < chunks->n; i++)
        sds__chunk_copy(&selection, i, chunks->kept[i], out);
    return SDS_OK;
}
