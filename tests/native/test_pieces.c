#include "pieces.h"

#include <string.h>

#include "check.h"

#define FILE_BYTES (1 << 18)
#define MOST 20000
static uint8_t content[FILE_BYTES];
static uint8_t out[FILE_BYTES + 16];
static uint8_t expected[FILE_BYTES + 16];
static sds_piece pieces[MOST];

/* Levels, innermost first, that stay within room; half of the holes are 0 or tiny, so that pieces
 * and rows touch in every way. */
static sds_runs random_runs(uint64_t *state, int64_t room, int64_t most_pieces)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 64, 1000};
    sds_runs runs = {.first_offset = random_between(state, 0, room / 8)};
    runs.run_bytes = sizes[random_u64(state) % (sizeof sizes / sizeof *sizes)];
    sds_level level[4];
    int64_t span = runs.run_bytes, total = 1;
    int n = 0;
    while (n < 4 && random_u64(state) % 6 != 0) {
        const int64_t gaps[] = {0, random_between(state, 0, 8), random_between(state, 0, 100),
                                random_between(state, 0, room / 16)};
        const int64_t stride = span + gaps[random_u64(state) % 4];
        int64_t most = (room - runs.first_offset - span) / stride + 1;
        if (most > most_pieces / total) most = most_pieces / total;
        if (most < 1) break;
        level[n].stride_bytes = stride;
        level[n].count = random_between(state, 1, most < 12 ? most : 12);
        if (n == 0 && random_u64(state) % 4 == 0) level[n].count = random_between(state, 1, most);
        total *= level[n].count;
        span += (level[n].count - 1) * stride;
        n++;
    }
    runs.n_levels = n;
    for (int l = 0; l < n; l++)
        runs.level[l] = level[n - 1 - l];
    return runs;
}

/* Every piece, one by one. */
static int64_t expand(const sds_runs *runs, int32_t l, int64_t offset, int64_t n)
{
    if (l == runs->n_levels) {
        CHECK(n < MOST);
        pieces[n] = (sds_piece){offset, runs->run_bytes, n * runs->run_bytes};
        return n + 1;
    }
    for (int64_t i = 0; i < runs->level[l].count; i++)
        n = expand(runs, l + 1, offset + i * runs->level[l].stride_bytes, n);
    return n;
}

static int compare_offsets(const void *a, const void *b)
{
    const int64_t x = ((const sds_piece *)a)->offset, y = ((const sds_piece *)b)->offset;
    return (x > y) - (x < y);
}

/* A list of pieces, some of which overlap in the file; their places in memory are mixed. */
static int64_t random_list(uint64_t *state)
{
    static int64_t order[MOST];
    const int64_t n = random_between(state, 1, random_u64(state) % 8 == 0 ? 2000 : 60);
    const int64_t spread = INT64_C(1) << random_between(state, 8, 17);
    for (int64_t i = 0; i < n; i++) {
        pieces[i].offset = random_between(state, 0, spread);
        pieces[i].length = random_u64(state) % 2 ? 1 << random_between(state, 0, 4)
                                                 : random_between(state, 1, 100);
        if (random_u64(state) % 100 == 0) pieces[i].length = random_between(state, 1, 3000);
        order[i] = i;
    }
    qsort(pieces, (size_t)n, sizeof *pieces, compare_offsets);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = random_between(state, 0, i), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    int64_t position = random_between(state, 0, 9);
    for (int64_t i = 0; i < n; i++) {
        pieces[order[i]].position = position;
        position += pieces[order[i]].length + (random_u64(state) % 4 == 0);
    }
    CHECK(position <= FILE_BYTES);
    return n;
}

static int64_t random_bound(uint64_t *state)
{
    const int64_t any[] = {INT64_MAX, random_between(state, 1, 20), random_between(state, 1, 500),
                           random_between(state, 1, 20000)};
    return any[random_u64(state) % 4];
}

/* Chen 2014, Algorithm 2, with the bounds: as many pieces as fit. */
static int64_t greedy_groups(int64_t n, int64_t max_hole, int64_t max_bytes, int64_t max_pieces)
{
    int64_t groups = 0, begin = 0, end = 0, taken = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t offset = pieces[i].offset, piece_end = offset + pieces[i].length;
        const int64_t hole = offset > end ? offset - end : 0;
        const int64_t longer = piece_end > end ? piece_end : end;
        if (taken > 0 && hole <= max_hole && longer - begin <= max_bytes && taken < max_pieces) {
            end = longer;
            taken++;
            continue;
        }
        groups += pieces[i].length > max_bytes ? (pieces[i].length - 1) / max_bytes + 1 : 1;
        begin = offset;
        end = piece_end;
        taken = pieces[i].length > max_bytes ? 0 : 1;
    }
    return groups;
}

static void check_group(const sds__group *group, int64_t max_hole, int64_t max_bytes,
                        int64_t max_pieces)
{
    const sds_piece *first = &pieces[group->first_piece];
    CHECK(group->n_pieces >= 1 && group->n_pieces <= max_pieces);
    CHECK(group->length >= 1 && group->length <= max_bytes);
    CHECK(group->offset == first->offset + group->skip_bytes);
    int64_t end = first->offset + first->length, useful = 0;
    for (int64_t i = 0; i < group->n_pieces; i++) {
        CHECK(i == 0 || first[i].offset - end <= max_hole);
        CHECK(max_hole >= 0 || i == 0);
        if (first[i].offset + first[i].length > end) end = first[i].offset + first[i].length;
        useful += first[i].length;
    }
    if (group->n_pieces == 1) {
        CHECK(group->skip_bytes + group->length <= first->length);
        CHECK(group->bytes_useful == group->length);
    } else {
        CHECK(group->skip_bytes == 0 && group->offset + group->length == end);
        CHECK(group->bytes_useful == useful);
    }
}

static void check_strips(const sds__access *access, const sds__group *group)
{
    sds__strip_cursor cursor;
    sds__strip strip;
    int64_t i = group->first_piece;
    sds__strip_cursor_init(&cursor, access, group);
    while (sds__strip_next(&cursor, &strip))
        for (int64_t k = 0; k < strip.count; k++, i++) {
            const int64_t skip = i == group->first_piece ? group->skip_bytes : 0;
            CHECK(strip.offset + k * strip.stride == pieces[i].offset + skip);
            CHECK(strip.position + k * strip.length == pieces[i].position + skip);
            CHECK(strip.length == (group->n_pieces == 1 ? group->length : pieces[i].length));
        }
    CHECK(i == group->first_piece + group->n_pieces);
}

/* Walk the groups of an access whose n pieces are in the array; what they scatter is in out. */
static void check_groups(const sds__access *access, int64_t n, int64_t max_hole, int64_t max_bytes,
                         int64_t max_pieces)
{
    sds__group_cursor cursor;
    sds__group group, before = {0};
    sds__group_totals walked = {0}, told;
    int64_t piece = 0, done_of_piece = 0;
    sds__group_cursor_init(&cursor, access, max_hole, max_bytes, max_pieces);
    while (sds__group_next(&cursor, &group)) {
        check_group(&group, max_hole, max_bytes, max_pieces);
        CHECK(group.first_piece == piece && group.skip_bytes == done_of_piece);
        if (access->runs != NULL && walked.groups > 0)
            CHECK(group.offset >= before.offset + before.length);
        check_strips(access, &group);
        sds__group_scatter(access, &group, content + group.offset);
        done_of_piece = group.n_pieces == 1 ? group.skip_bytes + group.length : 0;
        piece += group.n_pieces - (group.n_pieces == 1 && done_of_piece < pieces[piece].length);
        if (group.n_pieces == 1 && done_of_piece == pieces[group.first_piece].length)
            done_of_piece = 0;
        walked.groups++;
        walked.bytes_useful += group.bytes_useful;
        walked.bytes_read += group.length;
        if (group.length > walked.longest_bytes) walked.longest_bytes = group.length;
        if (group.n_pieces > 1 && group.length > walked.longest_merged_bytes)
            walked.longest_merged_bytes = group.length;
        if (group.n_pieces > walked.most_pieces) walked.most_pieces = group.n_pieces;
        before = group;
    }
    walked.pieces = piece;
    CHECK(piece == n && done_of_piece == 0);
    CHECK(!sds__group_next(&cursor, &group));
    sds__group_totals_of(access, max_hole, max_bytes, max_pieces, &told);
    CHECK(memcmp(&told, &walked, sizeof told) == 0);

    const int64_t greedy = greedy_groups(n, max_hole, max_bytes, max_pieces);
    if (access->runs == NULL || (max_bytes == INT64_MAX && max_pieces == INT64_MAX))
        CHECK(told.groups == greedy);
    else
        CHECK(told.groups <= 3 * greedy);
}

static int64_t check_access(const sds__access *access, int64_t n, uint64_t *state)
{
    int64_t total = 0;
    memset(expected, 0xA5, sizeof expected);
    for (int64_t i = 0; i < n; i++) {
        memcpy(expected + pieces[i].position, content + pieces[i].offset, (size_t)pieces[i].length);
        total += pieces[i].length;
    }
    CHECK(sds__access_check(access) == SDS_OK && sds__access_pieces(access) == n);
    const int64_t holes[] = {SDS__JOIN_NOTHING, SDS__JOIN_TOUCHING, SDS__JOIN_ALL,
                             random_between(state, 0, 200)};
    memset(out, 0xA5, sizeof out);
    check_groups(access, n, holes[random_u64(state) % 4], random_bound(state), random_bound(state));
    CHECK(memcmp(out, expected, sizeof out) == 0);

    const sds__group whole = sds__access_whole(access);
    memset(out, 0xA5, sizeof out);
    check_strips(access, &whole);
    sds__group_scatter(access, &whole, content + whole.offset);
    CHECK(memcmp(out, expected, sizeof out) == 0 && whole.bytes_useful == total);
    return total;
}

static void test_any_regular_access(void)
{
    uint64_t state = 7;
    int64_t total = 0;
    for (int round = 0; round < 40000; round++) {
        const sds_runs runs = random_runs(&state, FILE_BYTES, 2000);
        const sds__access access = {.runs = &runs, .out = out};
        total += check_access(&access, expand(&runs, 0, runs.first_offset, 0), &state);
    }
    CHECK(total > 0);
}

static void test_any_list(void)
{
    uint64_t state = 8;
    for (int round = 0; round < 20000; round++) {
        const int64_t n = random_list(&state);
        const sds__access access = {.n = (size_t)n, .pieces = pieces, .out = out};
        check_access(&access, n, &state);
    }
}

/* Large numbers: the groups of a sparse file of 2^50 bytes are counted, not walked. */
static void test_counting_needs_no_walk(void)
{
    const sds_runs runs = {
        INT64_C(1) << 42, 8, 3, {{1 << 10, INT64_C(1) << 38}, {1 << 18, 1 << 20}, {1 << 10, 512}}};
    const sds__access access = {.runs = &runs};
    sds__group_totals told;
    CHECK(sds__access_check(&access) == SDS_OK);
    sds__group_totals_of(&access, 504, 1 << 16, INT64_MAX, &told);
    /* Rows of 1024 pieces span 523,784 bytes: 8 groups of 128 pieces each. */
    CHECK(told.groups == INT64_C(8) << 28 && told.most_pieces == 128);
    CHECK(told.longest_bytes == 127 * 512 + 8 && told.longest_merged_bytes == told.longest_bytes);
    CHECK(told.pieces == INT64_C(1) << 38 && told.bytes_useful == INT64_C(8) << 38);
    CHECK(told.bytes_read == (INT64_C(8) << 28) * (127 * 512 + 8));
    sds__group_totals_of(&access, SDS__JOIN_NOTHING, INT64_MAX, INT64_MAX, &told);
    CHECK(told.groups == INT64_C(1) << 38 && told.longest_merged_bytes == 0);
    sds__group_totals_of(&access, SDS__JOIN_ALL, INT64_MAX, INT64_MAX, &told);
    CHECK(told.groups == 1 && told.bytes_read == 1023 * (INT64_C(1) << 38) +
                                                     ((INT64_C(1) << 18) - 1) * (1 << 20) +
                                                     1023 * 512 + 8);
}

static void test_what_is_cut_is_cut_evenly(void)
{
    const sds_runs runs = {0, 8, 1, {{100, 16}}}; /* 1592 bytes: 63 pieces to 1000 bytes */
    const sds__access access = {.runs = &runs};
    sds__group_cursor cursor;
    sds__group group;
    sds__group_cursor_init(&cursor, &access, 8, 1000, INT64_MAX);
    CHECK(sds__group_next(&cursor, &group) && group.n_pieces == 50);
    CHECK(sds__group_next(&cursor, &group) && group.n_pieces == 50 && group.offset == 800);
    CHECK(!sds__group_next(&cursor, &group));
}

static void refuse_runs(sds_runs runs, sds_status status)
{
    const sds__access access = {.runs = &runs};
    CHECK(sds__access_check(&access) == status);
}

static void refuse_pieces(sds_piece first, sds_piece second, sds_status status)
{
    const sds_piece both[] = {first, second};
    const sds__access access = {.n = 2, .pieces = both};
    CHECK(sds__access_check(&access) == status);
}

static void test_what_is_refused(void)
{
    refuse_runs((sds_runs){0, 8, 1, {{4, 8}}}, SDS_OK);
    refuse_runs((sds_runs){0, 8, 1, {{4, 7}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, 8, 1, {{1, 7}}}, SDS_OK);
    refuse_runs((sds_runs){0, 8, 2, {{2, 31}, {4, 8}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, 8, 1, {{4, -8}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, 8, 1, {{0, 8}}}, SDS_EINVAL);
    refuse_runs((sds_runs){-1, 8, 0, {{0, 0}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, -8, 0, {{0, 0}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, 8, 65, {{1, 8}}}, SDS_EINVAL);
    refuse_runs((sds_runs){0, 8, 1, {{4, INT64_MAX / 2}}}, SDS_EOVERFLOW);
    refuse_runs((sds_runs){INT64_MAX - 7, 8, 0, {{0, 0}}}, SDS_EOVERFLOW);
    refuse_runs((sds_runs){0, 0, 0, {{0, 0}}}, SDS_OK);
    const sds_piece good = {10, 5, 0};
    refuse_pieces(good, (sds_piece){10, 5, 5}, SDS_OK);
    refuse_pieces(good, (sds_piece){9, 5, 5}, SDS_EINVAL);
    refuse_pieces(good, (sds_piece){15, 0, 5}, SDS_EINVAL);
    refuse_pieces(good, (sds_piece){15, 5, -1}, SDS_EINVAL);
    refuse_pieces(good, (sds_piece){INT64_MAX - 4, 5, 5}, SDS_EOVERFLOW);
    refuse_pieces(good, (sds_piece){15, 5, INT64_MAX - 4}, SDS_EOVERFLOW);
    refuse_pieces((sds_piece){-1, 5, 0}, good, SDS_EINVAL);
}

static void test_nothing_has_no_groups(void)
{
    const sds_runs none = {0, 0, 0, {{0, 0}}};
    const sds__access accesses[] = {{.runs = &none}, {.n = 0}};
    for (int i = 0; i < 2; i++) {
        sds__group_cursor cursor;
        sds__group group;
        sds__group_totals told;
        sds__group_cursor_init(&cursor, &accesses[i], SDS__JOIN_ALL, 1, 1);
        CHECK(!sds__group_next(&cursor, &group));
        sds__group_totals_of(&accesses[i], SDS__JOIN_ALL, 1, 1, &told);
        CHECK(told.groups == 0 && told.pieces == 0 && told.bytes_read == 0);
        CHECK(sds__access_pieces(&accesses[i]) == 0);
    }
}

int main(void)
{
    uint64_t state = 9;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)random_u64(&state);
    test_any_regular_access();
    test_any_list();
    test_counting_needs_no_walk();
    test_what_is_cut_is_cut_evenly();
    test_what_is_refused();
    test_nothing_has_no_groups();
    return 0;
}
