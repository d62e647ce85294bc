#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "sds/trace_format.h"
#include "trace_fold.h"
#include "trace_layout.h"

/* Reads of one shape, as they were added and as the records say they were. */
#define MAX_READS 4096
static int64_t added[MAX_READS][3];
static int n_added;
static int64_t added_ns;
static int n_expanded;
static int64_t expanded_ns;
static int n_records;

static void expand(void *context, const sds_trace_record *record)
{
    (void)context;
    uint64_t counted = 0;
    for (int bucket = 0; bucket < SDS_TRACE_LATENCY_BUCKETS; bucket++)
        counted += record->latency[bucket];
    CHECK(counted == (uint64_t)record->n_reads);
    CHECK(record->first.start_ns == n_expanded);
    CHECK(record->last_start_ns == n_expanded + record->n_reads - 1);
    int64_t index[SDS_TRACE_MAX_LOOPS] = {0};
    for (int64_t i = 0; i < record->n_reads; i++) {
        for (int axis = 0; axis < 3; axis++) {
            int64_t start = record->first.slab.start[axis];
            for (int loop = 0; loop < record->n_loops; loop++)
                start += index[loop] * record->advance[loop][axis];
            CHECK(start == added[n_expanded][axis]);
        }
        n_expanded++;
        for (int loop = record->n_loops - 1; loop >= 0; loop--) {
            if (++index[loop] < record->repeat[loop]) break;
            index[loop] = 0;
        }
    }
    expanded_ns += record->elapsed_sum_ns;
    n_records++;
}

static void begin(void)
{
    n_added = n_expanded = n_records = 0, added_ns = expanded_ns = 0;
}

static void add(sds__fold *fold, int64_t i, int64_t j, int64_t k)
{
    static const sds__shape shape = {
        .dataset = 1,
        .kind = SDS_SELECT_HYPERSLAB,
        .rank = 3,
        .n_elements = 1,
    };
    int64_t *start = added[n_added];
    start[0] = i, start[1] = j, start[2] = k;
    const sds__fold_read read = {start, n_added, 100 + n_added % 7};
    added_ns += read.elapsed_ns;
    if (n_added++ == 0)
        sds__fold_begin(fold, &shape, &read, expand, NULL);
    else
        sds__fold_add(fold, &read);
}

static void finish(sds__fold *fold)
{
    sds__fold_flush(fold);
    CHECK(n_expanded == n_added && expanded_ns == added_ns);
}

static void test_nested_loops_are_one_record(void)
{
    static sds__fold fold;
    begin();
    for (int j = 0; j < 20; j++)
        for (int k = 0; k < 30; k++)
            add(&fold, 0, j, k);
    finish(&fold);
    CHECK(n_records == 1);

    begin();
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 5; j++)
                for (int k = 0; k < 6; k++)
                    add(&fold, i, 2 * j, 7 * k);
    finish(&fold);
    CHECK(n_records == 1);
}

static void test_a_loop_that_begins_in_the_middle_soon_locks_in(void)
{
    static sds__fold fold;
    for (int offset = 0; offset < 30; offset++) {
        begin();
        for (int n = offset; n < 3000; n++)
            add(&fold, 0, n / 30, n % 30);
        finish(&fold);
        CHECK(n_records <= 5);
    }
}

static void test_any_stream_expands_to_itself(void)
{
    static sds__fold fold;
    uint64_t state = 3;
    for (int round = 0; round < 20000; round++) {
        begin();
        const int64_t n_pieces = random_between(&state, 1, 4);
        for (int64_t piece = 0; piece < n_pieces; piece++) {
            if (random_u64(&state) % 4 == 0) {
                const int64_t n = random_between(&state, 1, 20);
                const int64_t range = random_between(&state, 1, 3);
                for (int64_t i = 0; i < n; i++)
                    add(&fold, random_between(&state, 0, range), 0,
                        random_between(&state, 0, range));
                continue;
            }
            int64_t repeat[5];
            int64_t step[5][3];
            for (int l = 0; l < 5; l++) {
                repeat[l] = random_between(&state, 1, 3);
                for (int axis = 0; axis < 3; axis++)
                    step[l][axis] = random_between(&state, -1, 2);
            }
            const int64_t total = repeat[0] * repeat[1] * repeat[2] * repeat[3] * repeat[4];
            const int64_t from = random_between(&state, 0, 2);
            for (int64_t n = from; n < total; n++) {
                int64_t start[3] = {0, 0, 0};
                int64_t rest = n;
                for (int l = 0; l < 5; l++) {
                    for (int axis = 0; axis < 3; axis++)
                        start[axis] += rest % repeat[l] * step[l][axis];
                    rest /= repeat[l];
                }
                add(&fold, start[0], start[1], start[2]);
            }
        }
        finish(&fold);
    }
}

static char directory[] = "/tmp/sds-test-trace-XXXXXX";

static sds_trace_writer *writer_new(int64_t pid, int64_t max_file_bytes)
{
    const sds_trace_options options = {directory, max_file_bytes, INT64_C(1) << 60, 0, NULL, NULL};
    const sds_trace_process process = {pid, 3, 8, 1000, "node/1", "/bin/prog", "", "user"};
    return sds_trace_writer_new(&options, &process);
}

static sds_trace_dataset dataset_of(const char *path)
{
    sds_trace_dataset dataset = {.file = "/data/run.h5",
                                 .path = path,
                                 .identity = {1, 2, 3, 4},
                                 .rank = 2,
                                 .extent = {100, 200},
                                 .element_bytes = 4,
                                 .type_class = 1,
                                 .storage = SDS_STORAGE_CONTIGUOUS,
                                 .data_offset_bytes = 2048,
                                 .hdf5_version = "2.0.0"};
    return dataset;
}

static sds_trace_read column(uint32_t dataset, int64_t j, int64_t start_ns)
{
    sds_trace_read read = {.dataset = dataset,
                           .kind = SDS_SELECT_HYPERSLAB,
                           .slab = {2, {0, j}, {1, 1}, {100, 1}, {1, 1}},
                           .n_elements = 100,
                           .start_ns = start_ns,
                           .elapsed_ns = 50};
    return read;
}

static void test_a_file_says_what_was_written(void)
{
    sds_trace_writer *writer = writer_new(1, 0);
    const sds_trace_dataset cube = dataset_of("/cube");
    const sds_trace_dataset grid = dataset_of("/grid");
    const uint32_t a = sds_trace_add_dataset(writer, &cube);
    const uint32_t b = sds_trace_add_dataset(writer, &grid);
    CHECK(a == 1 && b == 2 && sds_trace_add_dataset(writer, &cube) == a);
    struct stat found;
    CHECK(stat(sds_trace_writer_path(writer), &found) != 0);
    for (int64_t j = 0; j < 1000000; j++) {
        sds_trace_read read = column(a, j, 2000 + j);
        sds_trace_add_read(writer, &read);
        read = column(b, 5, 3000 + j);
        sds_trace_add_read(writer, &read);
    }
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);
    CHECK(stat(path, &found) == 0 && found.st_size < 1024 && (found.st_mode & 0777) == 0600);

    sds_trace_reader *reader;
    CHECK(sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    CHECK(sds_trace_reader_process(reader)->rank == 3);
    CHECK(strcmp(sds_trace_reader_process(reader)->executable, "/bin/prog") == 0);
    uint32_t id;
    sds_trace_dataset dataset;
    sds_trace_record record;
    CHECK(sds_trace_reader_next(reader, &id, &dataset, &record) == SDS_TRACE_DATASET && id == a);
    CHECK(strcmp(dataset.path, "/cube") == 0 && dataset.extent[1] == 200);
    CHECK(strcmp(dataset.hdf5_version, "2.0.0") == 0 && dataset.data_offset_bytes == 2048);
    CHECK(sds_trace_reader_next(reader, &id, &dataset, &record) == SDS_TRACE_DATASET && id == b);
    for (int i = 0; i < 2; i++) {
        CHECK(sds_trace_reader_next(reader, &id, &dataset, &record) == SDS_TRACE_RECORD);
        CHECK(record.n_reads == 1000000 && record.n_loops == 1);
        CHECK(record.advance[0][1] == (id == a) && record.elapsed_sum_ns == 50000000);
        CHECK(record.latency[5] == 1000000);
    }
    CHECK(sds_trace_reader_next(reader, &id, &dataset, &record) == SDS_TRACE_END);
    CHECK(sds_trace_reader_offset(reader) == found.st_size);
    CHECK(sds_trace_reader_torn_bytes(reader) == 0);
    CHECK(sds_trace_reader_dropped_reads(reader) == 0);
    sds_trace_reader_close(reader);
    CHECK(unlink(path) == 0);
    free(path);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Add a box of this width at j, of ranks up to the most that are put aside. */
static int add_box(sds_trace_writer *writer, uint32_t dataset, int8_t rank, int64_t j)
{
    const int64_t now_ns = monotonic_ns();
    int64_t first[SDS_TRACE_BOX_RANK], last[SDS_TRACE_BOX_RANK];
    const sds_trace_box box = {.dataset = dataset,
                               .rank = rank,
                               .kind = SDS_SELECT_HYPERSLAB,
                               .span = {now_ns, now_ns},
                               .first = first,
                               .last = last};
    for (int axis = 0; axis < rank; axis++) {
        first[axis] = axis == rank - 1 ? j : 0;
        last[axis] = first[axis] + (axis == rank - 1 ? 2 : 0);
    }
    return sds_trace_add_box(writer, &box);
}

#define N_IN_TURN 3000
static size_t taken_bytes;
static size_t most_taken_bytes;

static int take_up_to_most(size_t n_bytes)
{
    if (taken_bytes + n_bytes > most_taken_bytes) return 0;
    taken_bytes += n_bytes;
    return 1;
}

static void give_taken(size_t n_bytes)
{
    CHECK(n_bytes <= taken_bytes);
    taken_bytes -= n_bytes;
}

/* Reads of many datasets in turn, traced in so much memory; returns the records that tell of them,
 * which tell of each read. */
static int trace_in_turn(size_t n_bytes)
{
    static int64_t n_reads[N_IN_TURN + 1];
    const sds_trace_options options = {directory,       0,         INT64_C(1) << 60, 0,
                                       take_up_to_most, give_taken};
    const sds_trace_process process = {1, -1, 1, 1, "h", "e", "", "u"};
    most_taken_bytes = n_bytes;
    sds_trace_writer *writer = sds_trace_writer_new(&options, &process);
    for (uint32_t i = 0; i < N_IN_TURN; i++) {
        char name[16];
        snprintf(name, sizeof name, "/%u", (unsigned)i);
        const sds_trace_dataset dataset = dataset_of(name);
        CHECK(sds_trace_add_dataset(writer, &dataset) == i + 1);
    }
    for (int turn = 0; turn < 5; turn++)
        for (uint32_t i = 0; i < N_IN_TURN; i++)
            CHECK(add_box(writer, i + 1, 2, turn));
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);
    CHECK(taken_bytes == 0);

    sds_trace_reader *reader;
    CHECK(sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    memset(n_reads, 0, sizeof n_reads);
    int kind, n = 0;
    uint32_t id;
    sds_trace_dataset dataset;
    sds_trace_record record;
    while ((kind = sds_trace_reader_next(reader, &id, &dataset, &record)) != SDS_TRACE_END) {
        if (kind != SDS_TRACE_RECORD) continue;
        n_reads[record.first.dataset] += record.n_reads;
        n++;
    }
    for (int i = 1; i <= N_IN_TURN; i++)
        CHECK(n_reads[i] == 5);
    CHECK(sds_trace_reader_dropped_reads(reader) == 0);
    sds_trace_reader_close(reader);
    CHECK(unlink(path) == 0);
    free(path);
    return n;
}

static void test_reads_in_turn_that_are_refused_memory_are_records_of_their_own(void)
{
    const int all = trace_in_turn(SIZE_MAX), some = trace_in_turn(100000), none = trace_in_turn(0);
    CHECK(all <= N_IN_TURN + 64);
    CHECK(all < some && some < none);
    CHECK(none <= 5 * N_IN_TURN);
}

/* Boxes wait to be folded together: none is lost or counted twice, and none changes places with a
 * read that does not wait. */
static void test_boxes_are_reads_like_others(void)
{
    sds_trace_writer *writer = writer_new(1, 0);
    const sds_trace_dataset cube = dataset_of("/cube");
    const sds_trace_dataset grid = dataset_of("/grid");
    const uint32_t a = sds_trace_add_dataset(writer, &cube);
    const uint32_t b = sds_trace_add_dataset(writer, &grid);
    for (int64_t j = 0; j < 1001; j++) /* no multiple of those that wait */
        add_box(writer, a, 2, 3 * j);
    const sds_hyperslab slab = column(a, 7, 0).slab;
    const sds_trace_span span = {monotonic_ns(), monotonic_ns()};
    const sds_trace_timed_read read = {
        .dataset = a, .kind = SDS_SELECT_HYPERSLAB, .slab = &slab, .n_elements = 100, .span = span};
    sds_trace_add_timed_read(writer, &read);
    for (int64_t j = 0; j < 45; j++) { /* in turn, of two shapes */
        add_box(writer, b, 1, j);
        add_box(writer, b, SDS_TRACE_BOX_RANK, 2 * j);
    }
    add_box(writer, b + 1, 2, 0); /* of no dataset */
    const sds_trace_box too_many_axes = {.dataset = a, .rank = SDS_TRACE_BOX_RANK + 1};
    sds_trace_add_box(writer, &too_many_axes);
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);

    sds_trace_reader *reader;
    CHECK(sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    uint32_t id;
    sds_trace_dataset dataset;
    sds_trace_record record;
    int64_t n_reads[5] = {0};
    int event;
    while ((event = sds_trace_reader_next(reader, &id, &dataset, &record)) != SDS_TRACE_END) {
        if (event != SDS_TRACE_RECORD) continue;
        const int32_t rank = record.first.slab.rank;
        CHECK(record.first.kind == SDS_SELECT_HYPERSLAB);
        CHECK(record.first.slab.stride[0] == 1 && record.first.slab.block[0] == 1);
        if (record.first.n_elements == 100) { /* the column */
            CHECK(record.n_reads == 1 && rank == 2 && record.first.slab.start[1] == 7);
            continue;
        }
        CHECK(record.first.n_elements == 3 && record.first.slab.count[rank - 1] == 3);
        CHECK(record.first.dataset == (rank == 2 ? a : b));
        CHECK(record.n_loops == 1 && record.first.slab.start[rank - 1] == 0);
        CHECK(record.advance[0][rank - 1] == (rank == 2 ? 3 : rank == 1 ? 1 : 2));
        n_reads[rank] += record.n_reads;
    }
    CHECK(n_reads[1] == 45 && n_reads[2] == 1001 && n_reads[SDS_TRACE_BOX_RANK] == 45);
    CHECK(sds_trace_reader_dropped_reads(reader) == 0);
    sds_trace_reader_close(reader);
    CHECK(unlink(path) == 0);
    free(path);
}

/* Those that a parent has put aside are its own. */
static void test_boxes_that_wait_are_not_inherited(void)
{
    sds_trace_writer *writer = writer_new(1, 0);
    const sds_trace_dataset cube = dataset_of("/cube");
    const uint32_t id = sds_trace_add_dataset(writer, &cube);
    add_box(writer, id, 2, 0);
    add_box(writer, id, 2, 3);
    sds_trace_after_fork(writer, 2);
    CHECK(add_box(writer, id, 2, 0) == 0);
    const sds_trace_read read = column(id, 0, 0);
    CHECK(sds_trace_add_read(writer, &read) == 0);
    const uint32_t anew = sds_trace_add_dataset(writer, &cube);
    CHECK(anew > id);
    for (int64_t j = 0; j < 3; j++)
        CHECK(add_box(writer, anew, 2, 3 * j) == 1);
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);
    sds_trace_reader *reader;
    CHECK(sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    uint32_t found;
    sds_trace_dataset dataset;
    sds_trace_record record;
    CHECK(sds_trace_reader_next(reader, &found, &dataset, &record) == SDS_TRACE_DATASET);
    CHECK(sds_trace_reader_next(reader, &found, &dataset, &record) == SDS_TRACE_RECORD);
    CHECK(record.n_reads == 3);
    CHECK(sds_trace_reader_next(reader, &found, &dataset, &record) == SDS_TRACE_END);
    sds_trace_reader_close(reader);
    CHECK(unlink(path) == 0);
    free(path);
}

static char *close_writer(sds_trace_writer *writer)
{
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);
    return path;
}

static uint32_t add_numbered(sds_trace_writer *writer, int64_t number)
{
    char name[32];
    snprintf(name, sizeof name, "/%lld", (long long)number);
    const sds_trace_dataset dataset = dataset_of(name);
    return sds_trace_add_dataset(writer, &dataset);
}

/* Every read of them is in the file, under an id that says which dataset it was of. */
static void test_there_may_be_more_datasets_than_are_remembered(void)
{
    enum { N = (1 << 20) + 10 };
    sds_trace_writer *writer = writer_new(1, INT64_C(1) << 30);
    for (int64_t i = 0; i < N; i++) {
        const uint32_t id = add_numbered(writer, i);
        CHECK(id != 0);
        if (i % 16 == 0) CHECK(add_numbered(writer, i) == id);
        const sds_trace_read read = column(id, i, i);
        CHECK(sds_trace_add_read(writer, &read) == 1);
    }
    char *path = close_writer(writer);
    int64_t *number_of = calloc((size_t)N + 1, sizeof *number_of);
    sds_trace_reader *reader;
    CHECK(number_of != NULL && sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    int64_t n_reads = 0;
    uint32_t id;
    sds_trace_dataset dataset;
    sds_trace_record record;
    for (;;) {
        const sds_trace_item item = sds_trace_reader_next(reader, &id, &dataset, &record);
        if (item == SDS_TRACE_END) break;
        CHECK(id >= 1 && id <= N);
        if (item == SDS_TRACE_DATASET) {
            number_of[id] = atoll(dataset.path + 1);
        } else {
            n_reads += record.n_reads;
            CHECK(record.first.slab.start[1] == number_of[id]);
        }
    }
    CHECK(n_reads == N && sds_trace_reader_dropped_reads(reader) == 0);
    CHECK(sds_trace_reader_skipped_bytes(reader) == 0 && sds_trace_reader_torn_bytes(reader) == 0);
    sds_trace_reader_close(reader);
    free(number_of);
    CHECK(unlink(path) == 0);
    free(path);
}

/* Where ids run out, the reads that have none are counted. */
static void test_reads_that_cannot_be_told_of_are_counted(void)
{
    const sds_trace_options options = {directory, 0, INT64_C(1) << 60, 10, NULL, NULL};
    const sds_trace_process process = {1, -1, 1, 1, "h", "e", "", "u"};
    sds_trace_writer *writer = sds_trace_writer_new(&options, &process);
    for (int64_t i = 0; i < 20; i++) {
        const uint32_t id = add_numbered(writer, i);
        CHECK((id != 0) == (i < 10));
        const sds_trace_read read = column(id, 0, 0);
        CHECK(sds_trace_add_read(writer, &read) == 1);
        CHECK(add_box(writer, id, 2, 0) == 1);
    }
    char *path = close_writer(writer);
    sds_trace_reader *reader;
    CHECK(sds_trace_reader_open(path, 0, &reader) == SDS_OK);
    int64_t n_reads = 0;
    uint32_t id;
    sds_trace_dataset dataset;
    sds_trace_record record;
    sds_trace_item item;
    while ((item = sds_trace_reader_next(reader, &id, &dataset, &record)) != SDS_TRACE_END)
        if (item == SDS_TRACE_RECORD) n_reads += record.n_reads;
    CHECK(n_reads == 20 && sds_trace_reader_dropped_reads(reader) == 20);
    sds_trace_reader_close(reader);
    CHECK(unlink(path) == 0);
    free(path);
}

/* Any bytes are walked to an end; the sanitizers watch. Checksums made right again reach what lies
 * behind them. */
static void test_any_damage_is_survived(void)
{
    sds_trace_writer *writer = writer_new(2, 0);
    const sds_trace_dataset cube = dataset_of("/cube");
    const uint32_t id = sds_trace_add_dataset(writer, &cube);
    uint64_t state = 17;
    for (int64_t i = 0; i < 200; i++) {
        sds_trace_read read = column(id, i < 100 ? i : random_between(&state, 0, 99), 1000 * i);
        read.elapsed_ns = random_between(&state, 1, 1 << 30);
        sds_trace_add_read(writer, &read);
        if (i % 50 == 0) sds_trace_flush(writer);
    }
    char *path = strdup(sds_trace_writer_path(writer));
    sds_trace_writer_close(writer);

    static uint8_t whole[1 << 16];
    static uint8_t damaged[1 << 16];
    FILE *file = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, file);
    fclose(file);
    CHECK(n > 100 && n < sizeof whole);
    for (int round = 0; round < 3000; round++) {
        memcpy(damaged, whole, n);
        const int64_t edits = random_between(&state, 1, 5);
        for (int64_t edit = 0; edit < edits; edit++)
            damaged[random_between(&state, 0, (int64_t)n - 1)] = (uint8_t)random_u64(&state);
        for (size_t at = 0; round % 2 && at + SDS__BLOCK_HEADER_BYTES <= n;) {
            sds__block_header header;
            memcpy(&header, damaged + at, sizeof header);
            if (header.length_bytes > n - at - sizeof header) break;
            header.crc32c = sds__block_crc32c(&header, damaged + at + sizeof header);
            memcpy(damaged + at, &header, sizeof header);
            at += sizeof header + header.length_bytes;
        }
        file = fopen(path, "wb");
        CHECK(fwrite(damaged, 1, (size_t)random_between(&state, 1, (int64_t)n), file) > 0);
        fclose(file);
        sds_trace_reader *reader;
        const sds_status status =
            sds_trace_reader_open(path, random_between(&state, 0, (int64_t)n), &reader);
        CHECK(status == SDS_OK || status == SDS_EFORMAT || status == SDS_EVERSION);
        if (status != SDS_OK) continue;
        uint32_t item_id;
        sds_trace_dataset dataset;
        sds_trace_record record;
        sds_trace_item item;
        while ((item = sds_trace_reader_next(reader, &item_id, &dataset, &record)) != SDS_TRACE_END)
            CHECK(item == SDS_TRACE_DATASET ? strlen(dataset.path) < n : record.n_reads > 0);
        sds_trace_reader_close(reader);
    }
    CHECK(unlink(path) == 0);
    free(path);
}

static void test_without_a_spool_nothing_happens(void)
{
    const sds_trace_options options = {"/nonexistent/spool", 0, 1, 0, NULL, NULL};
    const sds_trace_process process = {1, -1, 1, 1, "h", "e", "", "u"};
    sds_trace_writer *writer = sds_trace_writer_new(&options, &process);
    const sds_trace_dataset cube = dataset_of("/cube");
    const uint32_t id = sds_trace_add_dataset(writer, &cube);
    for (int64_t j = 0; j < 10; j++) {
        const sds_trace_read read = column(id, j * j, 1000000 * j);
        sds_trace_add_read(writer, &read);
    }
    sds_trace_writer_close(writer);
    sds_trace_writer_close(NULL);
    CHECK(sds_trace_add_dataset(NULL, &cube) == 0);
}

static sds_trace_writer *interrupted;

static void flush_as_exit_does(int signal_number)
{
    (void)signal_number;
    sds_trace_flush(interrupted);
}

/* A handler that calls exit has the trace written inside of the read that it interrupted. */
static void test_a_signal_in_the_middle_of_a_read_waits_for_nothing(void)
{
    const sds_trace_options options = {directory, 0, 1, 0, NULL, NULL};
    const sds_trace_process process = {1, -1, 1, 1, "h", "e", "", "u"};
    const sds_trace_dataset cube = dataset_of("/cube");
    interrupted = sds_trace_writer_new(&options, &process);
    const uint32_t id = sds_trace_add_dataset(interrupted, &cube);
    CHECK(signal(SIGALRM, flush_as_exit_does) != SIG_ERR);
    for (int64_t j = 0; j < 20000; j++) {
        const sds_trace_read read = column(id, j * j % 1000, 1000 * j);
        const struct itimerval soon = {{0, 0}, {0, 1 + j % 37}};
        if (j % 40 == 0) CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        sds_trace_add_read(interrupted, &read);
        add_box(interrupted, id, 2, j);
    }
    CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR);
    char *path = strdup(sds_trace_writer_path(interrupted));
    sds_trace_writer_close(interrupted);
    CHECK(unlink(path) == 0);
    free(path);
}

int main(void)
{
    CHECK(mkdtemp(directory) != NULL);
    test_nested_loops_are_one_record();
    test_a_loop_that_begins_in_the_middle_soon_locks_in();
    test_any_stream_expands_to_itself();
    test_a_file_says_what_was_written();
    test_reads_in_turn_that_are_refused_memory_are_records_of_their_own();
    test_boxes_are_reads_like_others();
    test_boxes_that_wait_are_not_inherited();
    test_there_may_be_more_datasets_than_are_remembered();
    test_reads_that_cannot_be_told_of_are_counted();
    test_any_damage_is_survived();
    test_without_a_spool_nothing_happens();
    test_a_signal_in_the_middle_of_a_read_waits_for_nothing();
    CHECK(rmdir(directory) == 0);
    return 0;
}
