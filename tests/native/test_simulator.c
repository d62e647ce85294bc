#include "sds/simulator.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "arithmetic.h"
#include "check.h"
#include "event_queue.h"
#include "run_rank.h"
#include "simulate_disk.h"
#include "simulate_machine.h"

#define MIB (INT64_C(1) << 20)
#define NS_PER_S 1e9

static const sds_simulator_parameters hopper = {
    .striping = {MIB, 100},
    .raid = {512, 8, 4096},
    .page_bytes = 4096,
    .read_ahead_bytes = MIB,
    .read_ahead_gap_bytes = 32768,
    .read_ahead_after = 2,
    .rpc_bytes = MIB,
    .max_rpcs_in_flight = 8,
    .processes_per_node = 24,
    .client_request_s = 10e-6,
    .client_bytes_per_s = 1e9,
    .network_latency_s = 50e-6,
    .ost_request_s = 20e-6,
    .ost_bytes_per_s = 200e6,
    .disk_settle_s = 1e-3,
    .disk_full_stroke_s = 16e-3,
    .disk_revolution_s = 8e-3,
    .disk_bytes_per_s = 128e6,
    .disk_capacity_bytes = INT64_C(1) << 40,
    .n_aggregators = 16,
    .collective_buffer_bytes = 16 * MIB,
    .shuffle_message_s = 10e-6,
    .shuffle_bytes_per_s = 1e9,
    .max_events = INT64_C(1) << 30,
};

static sds_simulator_operation one_axis(int64_t extent, int64_t n_processes,
                                        const sds_hyperslab slabs[])
{
    return (sds_simulator_operation){
        .array = {.rank = 1, .extent = {extent}, .element_bytes = 1},
        .n_processes = n_processes,
        .slabs = slabs,
        .list_depth = 64,
        .sieve_buffer_bytes = 32 * MIB,
    };
}

static sds_hyperslab every(int64_t start, int64_t stride, int64_t count, int64_t block)
{
    return (sds_hyperslab){
        .rank = 1, .start = {start}, .stride = {stride}, .count = {count}, .block = {block}};
}

static int64_t ns(double seconds)
{
    return (int64_t)llround(seconds * NS_PER_S);
}

/* 8 MiB of the object between two reads, 1 MiB on each disk: longer than 5 ms at 128 MB/s. */
static void test_far_reads_take_a_seek_half_a_revolution_and_the_transfer_each(void)
{
    const int64_t n = 50, apart = 8 * MIB;
    const sds_hyperslab slab = every(0, apart * 100, n, 1);
    const sds_simulator_operation operation = one_axis(apart * 100 * n, 1, &slab);
    sds_simulated found;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_OK);
    CHECK(found.requests == n && found.messages == n && found.disk_seeks == 8 * n);
    const int64_t client = ns(10e-6) + ns(1e-9);
    const int64_t network = 2 * ns(50e-6) + ns(20e-6) + ns(4096 / 200e6);
    const int64_t first = ns(1e-3) + ns(15e-3 * 8 / 15) + ns(4e-3);
    /* From the end of a block to the next one: a block less than a MiB. */
    const double root = sqrt((double)(MIB - 512)) / sqrt(ldexp(1, 40));
    const int64_t later = ns(1e-3) + (int64_t)(15e-3 * NS_PER_S * root) + ns(4e-3);
    const int64_t each = client + network + ns(512 / 128e6);
    CHECK(found.elapsed_ns == n * each + first + (n - 1) * later);
    CHECK(found.positioning_ns == 8 * (first + (n - 1) * later));
}

/* Every other of nine columns: the last of a row and the first of the next one are one run. */
static void test_runs_that_touch_are_one_request(void)
{
    const int64_t n_rows = 5000;
    const sds_hyperslab slab = {.rank = 2, .stride = {1, 2}, .count = {n_rows, 5}, .block = {1, 1}};
    sds_simulator_operation operation = {
        .array = {.rank = 2, .extent = {n_rows, 9}, .element_bytes = 1},
        .n_processes = 1,
        .slabs = &slab,
        .list_depth = 1,
        .sieve_buffer_bytes = 1,
    };
    sds_simulator_parameters slow = hopper;
    slow.client_bytes_per_s = 1.6e9; /* one byte takes no whole nanosecond, two take one */
    sds_simulated found[2];
    for (int i = 0; i < 2; i++) {
        operation.is_request_by_request = i;
        CHECK(sds_simulate(&operation, &slow, &found[i], NULL, NULL) == SDS_OK);
        CHECK(found[i].requests == n_rows * 4 + 1);
        CHECK(found[i].bytes_useful == n_rows * 5);
    }
    CHECK(found[0].elapsed_ns == found[1].elapsed_ns);
}

/* 128 KiB of the object, 16 KiB on each disk: quicker to read through than to seek. */
static void test_near_reads_take_what_lies_between(void)
{
    const int64_t n = 8;
    const sds_hyperslab slab = every(0, MIB / 8, n, 1);
    const sds_simulator_operation operation = one_axis(MIB, 1, &slab);
    sds_simulated found;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_OK);
    const int64_t first = ns(1e-3) + ns(15e-3 * 8 / 15) + ns(4e-3);
    CHECK(found.disk_accesses == 8 * n && found.disk_seeks == 8);
    CHECK(found.positioning_ns == 8 * (first + (n - 1) * ns((16384 - 512) / 128e6)));
}

static void test_what_is_read_once_stays_in_memory(void)
{
    sds_hyperslab slabs[300];
    for (int64_t i = 0; i < 300; i++)
        slabs[i] = every(i, 64 * MIB, 4, 1 + i % 7);
    const sds_simulator_operation operation = one_axis(256 * MIB, 300, slabs);
    sds_simulated found;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_OK);
    CHECK(found.disk_accesses == 4 * 8);
    CHECK(found.bytes_from_disk == 4 * 4096);
    CHECK(found.clients == 7); /* they differ in length, and in nothing else that counts */
    CHECK(found.requests == 300 * 4);
}

static void test_a_large_read_keeps_every_ost_busy(void)
{
    const int64_t n_bytes = 400 * MIB;
    const sds_hyperslab slab = every(0, 1, n_bytes, 1);
    const sds_simulator_operation operation = one_axis(n_bytes, 1, &slab);
    int64_t link_busy_ns[100], disk_busy_ns[100];
    sds_simulated found;
    CHECK(sds_simulate(&operation, &hopper, &found, link_busy_ns, disk_busy_ns) == SDS_OK);
    CHECK(found.requests == 1 && found.messages == 400 && found.bytes_sent == n_bytes);
    for (int o = 0; o < 100; o++) {
        CHECK(link_busy_ns[o] == 4 * (ns(20e-6) + ns((double)MIB / 200e6)));
        CHECK(disk_busy_ns[o] == ns(1e-3) + ns(8e-3) + ns(4e-3) + 4 * ns((double)MIB / 8 / 128e6));
    }
    const int64_t copying = ns((double)n_bytes / 1e9);
    CHECK(found.elapsed_ns - copying >= link_busy_ns[0]);
    CHECK(found.elapsed_ns - copying <= link_busy_ns[0] + disk_busy_ns[0] + ns(1e-3));
}

static void test_aggregators_read_what_is_wanted_once_and_keep_step(void)
{
    sds_hyperslab slabs[32];
    for (int64_t i = 0; i < 32; i++)
        slabs[i] = every(i * 1000, 32000, 64 * 32, 1000); /* cyclic */
    sds_simulator_operation operation = one_axis(64 * 32 * 32000, 32, slabs);
    operation.is_collective = 1;
    sds_simulated found;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_OK);
    const int64_t n_bytes = 64 * 32 * 32000;
    CHECK(found.bytes_useful == n_bytes);
    CHECK(found.bytes_sent == sds__divide_up(n_bytes, 4096) * 4096);
    CHECK(found.requests == 16); /* each has 4 MiB: one buffer */
    CHECK(found.shuffle_ns == 32 * ns(10e-6) + ns((double)(4 * MIB) / 1e9));
    CHECK(found.elapsed_ns == found.io_ns + found.shuffle_ns);
}

static void test_limits_and_bad_input_are_told(void)
{
    const sds_hyperslab slab = every(0, 4096, 1000, 1);
    sds_simulator_operation operation = one_axis(4096 * 1000, 1, &slab);
    sds_simulator_parameters bad = hopper;
    sds_simulated found;
    bad.max_events = 3;
    CHECK(sds_simulate(&operation, &bad, &found, NULL, NULL) == SDS_ELIMIT);
    bad = hopper;
    bad.disk_capacity_bytes = 4096;
    CHECK(sds_simulate(&operation, &bad, &found, NULL, NULL) == SDS_ELIMIT);
    bad = hopper;
    bad.disk_bytes_per_s = NAN;
    CHECK(sds_simulate(&operation, &bad, &found, NULL, NULL) == SDS_EINVAL);
    bad = hopper;
    bad.network_latency_s = -1;
    CHECK(sds_simulate(&operation, &bad, &found, NULL, NULL) == SDS_EINVAL);
    bad = hopper;
    bad.striping.stripe_bytes = 5000;
    CHECK(sds_simulate(&operation, &bad, &found, NULL, NULL) == SDS_EINVAL);
    operation.strategy = 7;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_EINVAL);
    operation.strategy = SDS_SIMULATE_MULTIPLE;
    operation.array.extent[0] = 100;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_EBOUNDS);
    operation.n_processes = 0;
    CHECK(sds_simulate(&operation, &hopper, &found, NULL, NULL) == SDS_OK);
    CHECK(found.elapsed_ns == 0 && found.requests == 0);
}

/* Times at the edge of what is followed end in an error, never in an overflow. */
static void test_endless_simulations_end(void)
{
    const int64_t n = INT64_C(1) << 40;
    const sds_hyperslab slab = every(0, 2, n, 1);
    sds_simulator_operation operation = one_axis(2 * n, 1, &slab);
    sds_simulator_parameters slow = hopper;
    sds_simulated found;
    slow.client_request_s = SDS_SIMULATOR_MAX_COST_S;
    CHECK(sds_simulate(&operation, &slow, &found, NULL, NULL) == SDS_ELIMIT);
    slow = hopper;
    slow.ost_bytes_per_s = SDS_SIMULATOR_MIN_RATE;
    slow.ost_request_s = slow.network_latency_s = slow.disk_revolution_s = SDS_SIMULATOR_MAX_COST_S;
    slow.max_events = 1000;
    CHECK(sds_simulate(&operation, &slow, &found, NULL, NULL) == SDS_ELIMIT);
}

/* Work that no event counts, and memory, are limited as well. */
static void test_no_input_takes_for_ever(void)
{
    const int64_t n_rows = INT64_C(1) << 40;
    const sds_hyperslab touching = {
        .rank = 2, .stride = {1, 2}, .count = {n_rows, 2}, .block = {1, 1}};
    sds_simulator_operation operation = {
        .array = {.rank = 2, .extent = {n_rows, 3}, .element_bytes = 1},
        .n_processes = 1,
        .slabs = &touching,
        .list_depth = 7,
        .sieve_buffer_bytes = 1,
    };
    sds_simulator_parameters machine = hopper;
    sds_simulated found;
    machine.max_events = 100000;
    for (operation.strategy = SDS_SIMULATE_MULTIPLE; operation.strategy <= SDS_SIMULATE_LIST;
         operation.strategy++)
        CHECK(sds_simulate(&operation, &machine, &found, NULL, NULL) == SDS_ELIMIT);
    operation.is_collective = 1;
    operation.strategy = SDS_SIMULATE_MULTIPLE;
    machine.collective_buffer_bytes = 1;
    CHECK(sds_simulate(&operation, &machine, &found, NULL, NULL) == SDS_ELIMIT);
    /* Every aggregator looks at every process, even before the first event. */
    enum { MANY = 4096 };
    static sds_hyperslab slabs[MANY];
    for (int64_t i = 0; i < MANY; i++)
        slabs[i] = every(i * MIB, MANY * MIB, 2, 1);
    sds_simulator_operation crowd = one_axis(2 * MANY * MIB, MANY, slabs);
    crowd.is_collective = 1;
    machine.collective_buffer_bytes = hopper.collective_buffer_bytes;
    machine.n_aggregators = MANY;
    CHECK(sds_simulate(&crowd, &machine, &found, NULL, NULL) == SDS_ELIMIT);
    CHECK(found.events > machine.max_events && found.events <= machine.max_events + MANY);
    operation.is_collective = 0;
    /* Cells of one byte: more of them than can be remembered. */
    machine = hopper;
    machine.raid = (sds_raid){1, 3, INT64_C(1) << 50};
    machine.disk_capacity_bytes = INT64_C(1) << 50;
    CHECK(sds_simulate(&operation, &machine, &found, NULL, NULL) == SDS_ELIMIT);
}

static sds_hyperslab random_slab(uint64_t *random, int32_t rank, const int64_t extent[])
{
    sds_hyperslab slab = {.rank = rank};
    for (int32_t a = 0; a < rank; a++) {
        slab.start[a] = random_between(random, 0, extent[a] - 1);
        const int64_t room = extent[a] - slab.start[a];
        slab.block[a] = random_between(random, 1, sds__least(room, 3));
        slab.stride[a] = random_between(random, slab.block[a], 5);
        slab.count[a] = random_between(random, 0, (room - slab.block[a]) / slab.stride[a] + 1);
    }
    return slab;
}

static sds_simulator_parameters random_machine(uint64_t *random)
{
    const double costs[] = {0, 1e-6, 2e-5, 1e-3};
    const double rates[] = {2e3, 1e6, 2e8};
#define ONE_OF(values) (values)[random_u64(random) % (sizeof(values) / sizeof *(values))]
    sds_simulator_parameters machine = hopper;
    machine.page_bytes = INT64_C(4) << random_between(random, 0, 2);
    machine.striping.stripe_bytes = machine.page_bytes * random_between(random, 1, 6);
    machine.striping.stripe_count = random_between(random, 1, 5);
    machine.raid.unit_bytes = random_between(random, 1, 9);
    machine.raid.data_disks = random_between(random, 1, 4);
    machine.raid.min_request_bytes =
        random_between(random, 0, 1)
            ? machine.raid.unit_bytes * machine.raid.data_disks * random_between(random, 1, 2)
            : random_between(random, 1, 30);
    machine.read_ahead_bytes = machine.page_bytes * random_between(random, 0, 40);
    machine.read_ahead_gap_bytes = random_between(random, 0, 40);
    machine.read_ahead_after = random_between(random, 0, 8);
    machine.rpc_bytes = machine.page_bytes * random_between(random, 1, 4);
    machine.max_rpcs_in_flight = random_between(random, 1, 3);
    machine.processes_per_node = random_between(random, 1, 4);
    machine.client_request_s = ONE_OF(costs);
    machine.client_bytes_per_s = ONE_OF(rates);
    machine.network_latency_s = ONE_OF(costs);
    machine.ost_request_s = ONE_OF(costs);
    machine.ost_bytes_per_s = ONE_OF(rates);
    machine.disk_bytes_per_s = ONE_OF(rates);
    machine.disk_capacity_bytes = INT64_C(1) << random_between(random, 14, 40);
    machine.n_aggregators = random_between(random, 1, 5);
    machine.collective_buffer_bytes = random_between(random, 1, 300);
    if (random_between(random, 0, 3) == 0) {
        machine.fetch_bytes = random_between(random, 0, 100);
        machine.processors_per_node = random_between(random, 0, 3);
        machine.ost_forgets = random_between(random, 0, 1);
        machine.disk_first_s = ONE_OF(costs);
        machine.disk_request_s = ONE_OF(costs);
        machine.client_jitter_s = ONE_OF(costs);
        machine.client_start_s = ONE_OF(costs);
        machine.jitter_seed = random_between(random, 0, 9);
    }
    return machine;
}

static void test_aggregation_changes_nothing(void)
{
    uint64_t random = 20261121;
    int64_t aggregated = 0, followed = 0;
    for (int round = 0; round < 6000; round++) {
        const int32_t rank = (int32_t)random_between(&random, 1, 3);
        sds_simulator_operation operation = {.array = {.rank = rank}};
        for (int32_t a = 0; a < rank; a++)
            operation.array.extent[a] = random_between(&random, 1, a == rank - 1 ? 100 : 10);
        operation.array.element_bytes = random_between(&random, 1, 16);
        operation.array.offset_bytes = random_between(&random, 0, 100);
        sds_hyperslab slabs[9];
        operation.n_processes = random_between(&random, 1, 9);
        for (int64_t i = 0; i < operation.n_processes; i++) {
            slabs[i] = random_slab(&random, rank, operation.array.extent);
            if (i > 0 && random_between(&random, 0, 2)) {
                /* As in a decomposition: the same shape, a step further on one axis. */
                slabs[i] = slabs[i - 1];
                const int32_t a = (int32_t)random_between(&random, 0, rank - 1);
                const int64_t reach =
                    slabs[i].count[a] == 0
                        ? 0
                        : (slabs[i].count[a] - 1) * slabs[i].stride[a] + slabs[i].block[a];
                if (slabs[i].start[a] + reach < operation.array.extent[a]) slabs[i].start[a]++;
            }
        }
        operation.slabs = slabs;
        operation.is_collective = round % 4 == 0;
        operation.strategy = (int32_t)random_between(&random, 0, 2);
        operation.list_depth = random_between(&random, 1, 5);
        operation.sieve_buffer_bytes = random_between(&random, 1, 200);
        const sds_simulator_parameters machine = random_machine(&random);
        int64_t link[2][5], disk[2][5];
        sds_simulated found[2];
        for (int i = 0; i < 2; i++) {
            operation.is_request_by_request = i;
            CHECK(sds_simulate(&operation, &machine, &found[i], link[i], disk[i]) == SDS_OK);
        }
        aggregated += found[0].clients;
        followed += found[1].clients;
        CHECK(found[0].events <= found[1].events);
        found[0].events = found[1].events;
        found[0].clients = found[1].clients;
        CHECK(memcmp(&found[0], &found[1], sizeof found[0]) == 0);
        const size_t osts = (size_t)machine.striping.stripe_count * sizeof **link;
        CHECK(memcmp(link[0], link[1], osts) == 0 && memcmp(disk[0], disk[1], osts) == 0);
    }
    CHECK(aggregated < followed);
}

static void test_parts_are_dealt_in_turn(void)
{
    uint64_t random = 7;
    for (int round = 0; round < 2000; round++) {
        const int64_t unit = random_between(&random, 1, 9), n = random_between(&random, 1, 5);
        const int64_t low = random_between(&random, 0, 99);
        const int64_t high = low + random_between(&random, 1, 99);
        for (int64_t i = 0; i < n; i++) {
            int64_t first = -1, end = -1, from, to;
            for (int64_t b = low; b < high; b++) {
                if (b / unit % n != i) continue;
                const int64_t place = b / unit / n * unit + b % unit;
                CHECK(end < 0 || place == end); /* one range */
                if (first < 0) first = place;
                end = place + 1;
            }
            const int any = sds__deal(low, high, unit, n, i, &from, &to);
            CHECK(any == (first >= 0));
            CHECK(!any || (from == first && to == end));
        }
    }
}

static void test_memory_tells_what_is_missing(void)
{
    enum { CELLS = 40000 };
    static uint8_t expected[CELLS];
    int64_t blocks_left = 2;
    sds__disk disk;
    sds__disk_init(&disk, &blocks_left);
    uint64_t random = 5;
    for (int round = 0; round < 3000; round++) {
        const int64_t low = random_between(&random, 0, CELLS - 1);
        const int64_t most = random_between(&random, 0, 1) ? 3 : 300;
        const int64_t high = sds__least(CELLS, low + random_between(&random, 1, most));
        int64_t first = -1, last = -1, from = -1, to = -1;
        for (int64_t c = low; c < high; c++) {
            if (expected[c]) continue;
            if (first < 0) first = c;
            last = c + 1;
        }
        CHECK(sds__cells_missing(&disk.read, low, high, &from, &to) == (first >= 0));
        CHECK(from == first && to == last);
        if (random_between(&random, 0, 1)) {
            CHECK(sds__cells_mark(&disk.read, low, high) == SDS_OK);
            memset(&expected[low], 1, (size_t)(high - low));
        }
    }
    CHECK(blocks_left == 0);
    CHECK(sds__cells_mark(&disk.read, 2 * 32768, 2 * 32768 + 1) == SDS_ELIMIT);
    sds__disk_free(&disk);
}

static void test_the_elevator_goes_up_and_begins_again(void)
{
    int64_t blocks_left = 2;
    sds__disk disk;
    sds__disk_init(&disk, &blocks_left);
    const int64_t first[] = {50, 10, 90, 10};
    sds__wanted next;
    for (size_t i = 0; i < 4; i++)
        CHECK(sds__disk_want(&disk, &(sds__wanted){.low = first[i],
                                                   .high = first[i] + 1,
                                                   .message = (int32_t)i}) == SDS_OK);
    CHECK(sds__disk_next(&disk, &next) && next.low == 10);
    CHECK(sds__disk_next(&disk, &next) && next.low == 10);
    CHECK(sds__disk_next(&disk, &next) && next.low == 50);
    CHECK(sds__disk_want(&disk, &(sds__wanted){.low = 20, .high = 21}) == SDS_OK);
    CHECK(sds__disk_want(&disk, &(sds__wanted){.low = 60, .high = 61}) == SDS_OK);
    CHECK(sds__disk_next(&disk, &next) && next.low == 60);
    CHECK(sds__disk_next(&disk, &next) && next.low == 90);
    CHECK(sds__disk_next(&disk, &next) && next.low == 20);
    CHECK(!sds__disk_next(&disk, &next));
    sds__disk_free(&disk);
}

static void test_of_one_place_the_last_to_come_is_first(void)
{
    int64_t blocks_left = 2;
    sds__disk disk;
    sds__disk_init(&disk, &blocks_left);
    const sds__wanted come[] = {
        {.low = 10, .high = 12, .arrived_ns = 1, .process = 3},
        {.low = 20, .high = 21, .arrived_ns = 9, .process = 4},
        {.low = 10, .high = 13, .arrived_ns = 2, .process = 2},
        {.low = 10, .high = 11, .arrived_ns = 1, .process = 5},
    };
    const int64_t served[] = {2, 5, 3, 4};
    sds__wanted next;
    for (size_t i = 0; i < 4; i++)
        CHECK(sds__disk_want(&disk, &come[i]) == SDS_OK);
    for (size_t i = 0; i < 4; i++)
        CHECK(sds__disk_next(&disk, &next) && next.process == served[i]);
    sds__disk_free(&disk);
}

static void test_ranks_and_offsets_are_inverse(void)
{
    uint64_t random = 11;
    for (int round = 0; round < 500; round++) {
        sds_array array = {.rank = 3, .element_bytes = 3, .offset_bytes = 17};
        for (int32_t a = 0; a < 3; a++)
            array.extent[a] = random_between(&random, 1, 9);
        const sds_hyperslab slab = random_slab(&random, 3, array.extent);
        sds_runs runs;
        CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
        sds__ranked ranked;
        sds__ranked_of(&runs, &ranked);
        CHECK(ranked.n_bytes == sds_runs_bytes(&runs));
        sds_run_cursor cursor;
        sds_run_cursor_init(&cursor, &runs);
        sds_extent run;
        int64_t rank = 0, end = 0;
        while (sds_run_cursor_next(&cursor, &run)) {
            CHECK(sds__bytes_below(&ranked, (end + run.offset) / 2) == rank);
            for (int64_t i = 0; i < run.length; i++, rank++) {
                CHECK(sds__bytes_below(&ranked, run.offset + i) == rank);
                CHECK(sds__offset_of(&ranked, rank) == run.offset + i);
            }
            end = run.offset + run.length;
        }
        CHECK(rank == ranked.n_bytes && sds__bytes_below(&ranked, INT64_MAX) == rank);
    }
}

static void test_events_come_in_order_of_time(void)
{
    sds__event_queue queue = {0};
    uint64_t random = 3;
    int64_t now = 0;
    for (int round = 0; round < 20000; round++) {
        if (queue.n == 0 || random_between(&random, 0, 2)) {
            const sds__event event = {.time = now + random_between(&random, 0, 50)};
            CHECK(sds__event_push(&queue, event) == SDS_OK);
        } else {
            const sds__event event = sds__event_pop(&queue);
            CHECK(event.time >= now);
            now = event.time;
        }
    }
    sds__event_queue_free(&queue);
}

int main(void)
{
    test_far_reads_take_a_seek_half_a_revolution_and_the_transfer_each();
    test_runs_that_touch_are_one_request();
    test_near_reads_take_what_lies_between();
    test_what_is_read_once_stays_in_memory();
    test_a_large_read_keeps_every_ost_busy();
    test_aggregators_read_what_is_wanted_once_and_keep_step();
    test_limits_and_bad_input_are_told();
    test_endless_simulations_end();
    test_no_input_takes_for_ever();
    test_aggregation_changes_nothing();
    test_parts_are_dealt_in_turn();
    test_memory_tells_what_is_missing();
    test_the_elevator_goes_up_and_begins_again();
    test_of_one_place_the_last_to_come_is_first();
    test_ranks_and_offsets_are_inverse();
    test_events_come_in_order_of_time();
    return 0;
}
