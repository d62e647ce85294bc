/* Queues of an operation: what can be reckoned by hand, and what holds of any. */
#include "sds/queues.h"

#include <math.h>
#include <string.h>

#include "check.h"

#define PAGE INT64_C(4096)
#define MIB (INT64_C(1) << 20)

static const sds_queue_client CLIENT = {PAGE, 32768, MIB, 2, INT64_C(1) << 40, MIB, 8};
static const sds_striping STRIPING = {MIB, 4};
static const sds_queue_rates RATES = {.run_s = 1e-3,
                                      .run_byte_s = 1e-9,
                                      .trip_s = 2e-2,
                                      .reply_s = 3e-1,
                                      .sent_byte_s = 1e-6,
                                      .first_s = 5.0,
                                      .seek_s = 7.0,
                                      .reach_s = 2.0,
                                      .read_byte_s = 1e-5};

static sds_queued follow(size_t n, const sds_queue_stream streams[], int64_t max_fetches)
{
    sds_queued found;
    CHECK(sds_follow_queues(n, streams, 1, &STRIPING, &CLIENT, &RATES, max_fetches, &found) ==
          SDS_OK);
    return found;
}

/* From one place of an object to another. */
static double seek_s(int64_t distance)
{
    return 7.0 + 2.0 * sqrt((double)distance / (double)(1 << 30));
}

static int is_close(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static const int64_t ONE[1] = {1}, NO_STRIDE[1] = {0};
/* Work, trip, reply and bytes of a page that has been read, and copying of 8 bytes. */
static const double PAGE_S = 1e-3 + 2e-2 + 3e-1 + 4096e-6 + 8e-9;
static const double READ_S = 4096e-5;

static void test_a_page_alone(void)
{
    const sds_queue_stream stream = {16, 8, ONE, NO_STRIDE, 1};
    const sds_queued found = follow(1, &stream, 100);
    CHECK(is_close(found.slowest_s, PAGE_S + 5.0 + READ_S));
    CHECK(found.even_s == found.slowest_s && found.followed_share == 1.0);
    CHECK(found.fetches == 1 && found.reads == 1 && found.seeks == 1);
    CHECK(found.read_bytes == 4096 && found.fetched_bytes == 4096);
}

static void test_a_disk_serves_in_order_of_places(void)
{
    /* On the second server: far up, at the end of the first, and at the first page. */
    const sds_queue_stream streams[3] = {{400 * MIB + MIB, 8, ONE, NO_STRIDE, 1},
                                         {MIB + PAGE, 8, ONE, NO_STRIDE, 2},
                                         {MIB, 8, ONE, NO_STRIDE, 4}};
    const sds_queued found = follow(3, streams, 100);
    CHECK(found.seeks == 2);
    const double far_s = seek_s(100 * MIB - 2 * PAGE);
    CHECK(is_close(found.disk_s, 5.0 + far_s + 3 * READ_S));
    CHECK(is_close(found.slowest_s, PAGE_S + 5.0 + far_s + 3 * READ_S));
}

static void test_a_short_gap_is_read_through(void)
{
    const sds_queue_stream streams[2] = {{0, 8, ONE, NO_STRIDE, 1},
                                         {10 * PAGE, 8, ONE, NO_STRIDE, 2}};
    const sds_queued found = follow(2, streams, 100);
    CHECK(found.seeks == 1);
    CHECK(is_close(found.disk_s, 5.0 + 11 * READ_S));
}

static void test_a_node_is_sent_a_page_once(void)
{
    const sds_queue_stream apart[2] = {{0, 8, ONE, NO_STRIDE, 1}, {8, 8, ONE, NO_STRIDE, 2}};
    const sds_queue_stream together[2] = {{0, 8, ONE, NO_STRIDE, 2}, {8, 8, ONE, NO_STRIDE, 2}};
    CHECK(is_close(follow(2, together, 100).link_s, 3e-1 + 4096e-6));
    CHECK(is_close(follow(2, apart, 100).link_s, 2 * (3e-1 + 4096e-6)));
    CHECK(follow(2, apart, 100).reads == 1);
}

static void test_the_rest_goes_on_alike(void)
{
    const int64_t count[1] = {1000}, stride[1] = {40 * MIB};
    const sds_queue_stream stream = {0, 8, count, stride, 1};
    const sds_queued all = follow(1, &stream, 1000000), part = follow(1, &stream, 100);
    CHECK(all.followed_share == 1.0 && all.fetches == 1000);
    CHECK(part.followed_share < 0.2);
    CHECK(fabs(part.slowest_s / all.slowest_s - 1.0) < 0.02);
    CHECK(fabs(part.even_s / part.slowest_s - 1.0) < 1e-9);
}

static void test_a_long_run_is_asked_of_all_servers(void)
{
    const sds_queue_stream stream = {PAGE / 2, 10 * MIB, ONE, NO_STRIDE, 1};
    const sds_queued found = follow(1, &stream, 100);
    CHECK(found.fetched_bytes == (double)(10 * MIB + PAGE));
    CHECK(found.read_bytes == found.fetched_bytes && found.reads == 11);
    CHECK(found.fetches == 1 && found.followed_share == 1.0);
}

/* Disks that read in no time: what is waited for is messages, a link and the way there and back. */
static void test_messages_beyond_those_in_flight_wait_for_replies(void)
{
    const sds_striping striping = {4 * MIB, 1};
    const sds_queue_rates rates = {.trip_s = 100.0, .reply_s = 1.0};
    const sds_queue_stream stream = {0, 4 * MIB, ONE, NO_STRIDE, 1};
    sds_queue_client client = CLIENT;
    const double takes_s[] = {404.0, 203.0, 202.0, 104.0};
    for (int64_t i = 1; i <= 4; i++) {
        sds_queued found;
        client.in_flight = i;
        CHECK(sds_follow_queues(1, &stream, 1, &striping, &client, &rates, 100, &found) == SDS_OK);
        CHECK(is_close(found.slowest_s, takes_s[i - 1]));
        CHECK(is_close(found.link_s, 4.0));
    }
}

/* A fetch of which some messages have come is done in part. */
static void test_what_is_left_of_a_fetch_goes_on_alike(void)
{
    const sds_queue_stream stream = {0, 2000 * MIB, ONE, NO_STRIDE, 1};
    sds_queue_client client = CLIENT;
    client.in_flight = 1;
    sds_queued all, part;
    CHECK(sds_follow_queues(1, &stream, 1, &STRIPING, &client, &RATES, 10000, &all) == SDS_OK);
    CHECK(sds_follow_queues(1, &stream, 1, &STRIPING, &client, &RATES, 100, &part) == SDS_OK);
    CHECK(all.followed_share == 1.0);
    CHECK(part.followed_share > 0.02 && part.followed_share < 0.1);
}

/* What would take more memory than is stated is given up. */
static void test_there_is_room_for_a_million_messages_under_way(void)
{
    const sds_striping striping = {INT64_C(1) << 40, 1};
    sds_queue_client client = CLIENT;
    client.message_bytes = PAGE;
    client.in_flight = INT32_MAX;
    sds_queued found;
    for (int64_t n = INT64_C(1) << 18; n <= INT64_C(1) << 22; n <<= 4) {
        const sds_queue_stream stream = {0, n * PAGE, ONE, NO_STRIDE, 1};
        const sds_status expected = n > 1 << 20 ? SDS_ELIMIT : SDS_OK;
        CHECK(sds_follow_queues(1, &stream, 1, &striping, &client, &RATES, 100, &found) ==
              expected);
    }
    client.message_bytes = INT64_C(1) << 40; /* one, of pages in 2^22 places */
    const sds_queue_stream stream = {0, INT64_C(1) << 40, ONE, NO_STRIDE, 1};
    CHECK(sds_follow_queues(1, &stream, 1, &striping, &client, &RATES, 100, &found) == SDS_ELIMIT);
}

static void test_what_holds_of_any(void)
{
    uint64_t state = 5;
    for (int round = 0; round < 400; round++) {
        sds_queue_stream streams[40];
        int64_t counts[40][3], strides[40][3];
        const size_t n = (size_t)random_between(&state, 1, 40);
        for (size_t s = 0; s < n; s++) {
            int64_t span = random_between(&state, 1, round % 2 ? 64 : 3 * MIB);
            streams[s] = (sds_queue_stream){random_between(&state, 0, 50 * MIB), span, counts[s],
                                            strides[s], random_u64(&state) | 1};
            for (int k = 2; k >= 0; k--) {
                counts[s][k] = random_between(&state, 1, 6);
                strides[s][k] =
                    span + random_between(&state, 0, 1) * random_between(&state, 0, 3 * MIB);
                span = strides[s][k] * counts[s][k];
            }
        }
        const int64_t most = random_between(&state, 1, 3000);
        const sds_striping striping = {PAGE * random_between(&state, 1, 300),
                                       random_between(&state, 1, 9)};
        sds_queued found, again;
        CHECK(sds_follow_queues(n, streams, 3, &striping, &CLIENT, &RATES, most, &found) == SDS_OK);
        CHECK(sds_follow_queues(n, streams, 3, &striping, &CLIENT, &RATES, most, &again) == SDS_OK);
        CHECK(memcmp(&found, &again, sizeof found) == 0);
        CHECK(found.slowest_s >= found.followed_s && found.even_s >= found.followed_s);
        CHECK(found.followed_share <= 1.0 && found.least_share <= found.followed_share + 1e-9);
        CHECK(found.read_bytes <= (double)n * 60 * 6 * 6 * 6 * (double)MIB);
        if (found.followed_share == 1.0 && most > 2999) CHECK(found.followed_s >= found.link_s);
    }
}

static sds_status status_of(sds_queue_stream stream, sds_striping striping, sds_queue_client client,
                            sds_queue_rates rates, int32_t n_levels, int64_t max_fetches)
{
    sds_queued found;
    return sds_follow_queues(1, &stream, n_levels, &striping, &client, &rates, max_fetches, &found);
}

static void test_bad_numbers(void)
{
    const sds_queue_stream fine = {0, 8, ONE, NO_STRIDE, 1};
    CHECK(status_of(fine, STRIPING, CLIENT, RATES, 1, 1) == SDS_OK);
    CHECK(status_of(fine, STRIPING, CLIENT, RATES, 0, 1) == SDS_EINVAL);
    CHECK(status_of(fine, STRIPING, CLIENT, RATES, SDS_MAX_RANK + 1, 1) == SDS_EINVAL);
    CHECK(status_of(fine, STRIPING, CLIENT, RATES, 1, 0) == SDS_EINVAL);
    CHECK(status_of(fine, (sds_striping){MIB + 1, 4}, CLIENT, RATES, 1, 1) == SDS_EINVAL);
    CHECK(status_of(fine, (sds_striping){MIB, 0}, CLIENT, RATES, 1, 1) == SDS_EINVAL);
    sds_queue_client client = CLIENT;
    client.page_bytes = 0;
    CHECK(status_of(fine, STRIPING, client, RATES, 1, 1) == SDS_EINVAL);
    client = CLIENT;
    client.window_bytes = PAGE + 1;
    CHECK(status_of(fine, STRIPING, client, RATES, 1, 1) == SDS_EINVAL);
    client = CLIENT;
    client.message_bytes = PAGE + 1;
    CHECK(status_of(fine, STRIPING, client, RATES, 1, 1) == SDS_EINVAL);
    client = CLIENT;
    client.in_flight = 0;
    CHECK(status_of(fine, STRIPING, client, RATES, 1, 1) == SDS_EINVAL);
    sds_queue_rates rates = RATES;
    rates.trip_s = NAN;
    CHECK(status_of(fine, STRIPING, CLIENT, rates, 1, 1) == SDS_EINVAL);
    rates.trip_s = -1.0;
    CHECK(status_of(fine, STRIPING, CLIENT, rates, 1, 1) == SDS_EINVAL);
    const int64_t none[1] = {0}, many[1] = {INT64_MAX}, stride[1] = {INT64_MAX / 2};
    const sds_queue_stream wrong[] = {
        {-1, 8, ONE, NO_STRIDE, 1},        {0, 0, ONE, NO_STRIDE, 1},  {0, 8, none, NO_STRIDE, 1},
        {0, 8, many, stride, 1},           {0, 8, many, NO_STRIDE, 1}, {0, 8, ONE, NO_STRIDE, 0},
        {INT64_MAX, 8, ONE, NO_STRIDE, 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(status_of(wrong[i], STRIPING, CLIENT, RATES, 1, 1) == SDS_EINVAL);
    sds_queued found;
    CHECK(sds_follow_queues(0, &fine, 1, &STRIPING, &CLIENT, &RATES, 1, &found) == SDS_EINVAL);
}

int main(void)
{
    test_a_page_alone();
    test_a_disk_serves_in_order_of_places();
    test_a_short_gap_is_read_through();
    test_a_node_is_sent_a_page_once();
    test_the_rest_goes_on_alike();
    test_a_long_run_is_asked_of_all_servers();
    test_messages_beyond_those_in_flight_wait_for_replies();
    test_what_is_left_of_a_fetch_goes_on_alike();
    test_there_is_room_for_a_million_messages_under_way();
    test_what_holds_of_any();
    test_bad_numbers();
    return 0;
}
