#include <stdlib.h>
#include <string.h>

#include "list_fault.h"
#include "sds/list_io.h"

/* Places are counted with 32 bits, two of a piece. */
#define MAX_REGIONS (UINT64_C(1) << 31)

static int64_t length_of(const sds_regions *regions, size_t i)
{
    return regions->lengths == NULL ? regions->length : regions->lengths[i];
}

sds_status sds__list_fail(sds_list_fault *fault, sds_list_fault as)
{
    static const sds_status status_of[] = {
        [SDS_LIST_NEGATIVE] = SDS_EINVAL,       [SDS_LIST_TOO_FAR] = SDS_EOVERFLOW,
        [SDS_LIST_OUTSIDE_MEMORY] = SDS_EINVAL, [SDS_LIST_SUMS_DIFFER] = SDS_EINVAL,
        [SDS_LIST_OUTSIDE_FILE] = SDS_ESHORT,   [SDS_LIST_APPENDS] = SDS_EINVAL,
    };
    as.is_set = 1;
    if (fault != NULL) *fault = as;
    return status_of[as.rule];
}

/* Check a list; *sum is that of its lengths. */
static sds_status check_regions(const sds_regions *regions, int is_in_memory, int64_t *sum,
                                sds_list_fault *fault)
{
    int64_t end;
    *sum = 0;
    for (size_t i = 0; i < regions->n; i++) {
        const int64_t offset = regions->offsets[i], length = length_of(regions, i);
        const int is_negative = offset < 0 || length < 0;
        if (is_negative || __builtin_add_overflow(offset, length, &end) ||
            __builtin_add_overflow(*sum, length, sum))
            return sds__list_fail(fault,
                                  (sds_list_fault){
                                      .rule = is_negative ? SDS_LIST_NEGATIVE : SDS_LIST_TOO_FAR,
                                      .is_in_memory = is_in_memory,
                                      .region = i,
                                      .offset = offset,
                                      .length = length,
                                  });
    }
    return SDS_OK;
}

static sds_status check_within_memory(const sds_regions *regions, int64_t memory_bytes,
                                      sds_list_fault *fault)
{
    for (size_t i = 0; i < regions->n; i++) {
        const int64_t offset = regions->offsets[i], length = length_of(regions, i);
        if (length > 0 && offset + length > memory_bytes)
            return sds__list_fail(fault, (sds_list_fault){
                                             .rule = SDS_LIST_OUTSIDE_MEMORY,
                                             .is_in_memory = 1,
                                             .region = i,
                                             .offset = offset,
                                             .length = length,
                                             .memory_bytes = memory_bytes,
                                         });
    }
    return SDS_OK;
}

/* A piece on its way to the target: as sds_piece, with position in the target. */
typedef sds_piece move;

static size_t append(move *moves, size_t n, move next)
{
    move *last = moves + n - 1;
    if (n > 0 && last->offset + last->length == next.offset &&
        last->position + last->length == next.position) {
        last->length += next.length;
        return n;
    }
    moves[n] = next;
    return n + 1;
}

/* Cut two lists of as many bytes where either is cut, in their order; the number of moves. */
static size_t cut(const sds_regions *from, const sds_regions *to, move *moves)
{
    size_t n = 0, i = 0, j = 0;
    int64_t i_done = 0, j_done = 0;
    for (;;) {
        for (; i < from->n && i_done == length_of(from, i); i++)
            i_done = 0;
        for (; j < to->n && j_done == length_of(to, j); j++)
            j_done = 0;
        if (i == from->n || j == to->n) return n;
        const int64_t i_left = length_of(from, i) - i_done, j_left = length_of(to, j) - j_done;
        const int64_t length = i_left < j_left ? i_left : j_left;
        n = append(moves, n, (move){from->offsets[i] + i_done, length, to->offsets[j] + j_done});
        i_done += length;
        j_done += length;
    }
}

static void turn_around(size_t n, move moves[])
{
    for (size_t i = 0; i < n; i++) {
        const int64_t offset = moves[i].offset;
        moves[i].offset = moves[i].position;
        moves[i].position = offset;
    }
}

static int are_disjoint_in_order(size_t n, const move moves[])
{
    for (size_t i = 1; i < n; i++)
        if (moves[i].position < moves[i - 1].position + moves[i - 1].length) return 0;
    return 1;
}

/* The same for moves in any order, by sorting them. scratch: room for twice as many. */
static int are_disjoint_sorted(size_t n, const move moves[], move scratch[])
{
    memcpy(scratch, moves, n * sizeof *moves);
    turn_around(n, scratch);
    sds_pieces_sort(n, scratch, scratch + n);
    turn_around(n, scratch);
    return are_disjoint_in_order(n, scratch);
}

/* Set n bits from a place on; whether all were clear. */
static int mark(uint64_t *words, uint64_t place, uint64_t n)
{
    uint64_t taken = 0;
    while (n > 0) {
        const uint64_t bit = place % 64, here = n < 64 - bit ? n : 64 - bit;
        const uint64_t mask = (here == 64 ? UINT64_MAX : (UINT64_C(1) << here) - 1) << bit;
        taken |= words[place / 64] & mask;
        words[place / 64] |= mask;
        place += here;
        n -= here;
    }
    return taken == 0;
}

/* The same by a bit for every byte from the lowest on. */
static int are_disjoint_marked(size_t n, const move moves[], uint64_t *words, int64_t lowest)
{
    for (size_t i = 0; i < n; i++)
        if (!mark(words, (uint64_t)(moves[i].position - lowest), (uint64_t)moves[i].length))
            return 0;
    return 1;
}

/* Marking takes a few nanoseconds a move, sorting a hundred: mark, where that needs less memory. */
static sds_status are_disjoint(size_t n, const move moves[], int *disjoint)
{
    const size_t sort_bytes = 2 * n * sizeof *moves;
    int64_t lowest = INT64_MAX, end = 0;
    for (size_t i = 0; i < n; i++) {
        if (moves[i].position < lowest) lowest = moves[i].position;
        if (moves[i].position + moves[i].length > end) end = moves[i].position + moves[i].length;
    }
    const size_t n_words = (size_t)(end - lowest) / 64 + 1;
    const int is_marked = n_words <= sort_bytes / sizeof(uint64_t);
    void *scratch = is_marked ? calloc(n_words, sizeof(uint64_t)) : malloc(sort_bytes);
    if (scratch == NULL) return SDS_ENOMEM;
    *disjoint = is_marked ? are_disjoint_marked(n, moves, scratch, lowest)
                          : are_disjoint_sorted(n, moves, scratch);
    free(scratch);
    return SDS_OK;
}

/* The target between the places where a move begins or ends, and which move fills it.
 *
 * Moves come from the last to the first: each fills what is still free. next leads from a filled
 * cell to a free one behind it, over shorter and shorter ways. */
typedef struct {
    size_t n; /* cells; there is one more place */
    int64_t *places;
    uint32_t *filled_by;
    uint32_t *next;
} cells;

static int compare_places(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static sds_status make_cells(size_t n, const move moves[], cells *out)
{
    *out = (cells){
        .places = malloc(2 * n * sizeof *out->places),
        .filled_by = malloc(2 * n * sizeof *out->filled_by),
        .next = malloc(2 * n * sizeof *out->next),
    };
    if (out->places == NULL || out->filled_by == NULL || out->next == NULL) return SDS_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        out->places[2 * i] = moves[i].position;
        out->places[2 * i + 1] = moves[i].position + moves[i].length;
    }
    qsort(out->places, 2 * n, sizeof *out->places, compare_places);
    size_t n_places = 1;
    for (size_t i = 1; i < 2 * n; i++)
        if (out->places[i] != out->places[n_places - 1]) out->places[n_places++] = out->places[i];
    out->n = n_places - 1;
    for (size_t i = 0; i < n_places; i++) {
        out->filled_by[i] = UINT32_MAX;
        out->next[i] = (uint32_t)i;
    }
    return SDS_OK;
}

static void free_cells(cells *self)
{
    free(self->places);
    free(self->filled_by);
    free(self->next);
}

static uint32_t first_free(cells *self, uint32_t cell)
{
    while (self->next[cell] != cell) {
        self->next[cell] = self->next[self->next[cell]];
        cell = self->next[cell];
    }
    return cell;
}

static uint32_t cell_at(const cells *self, int64_t place)
{
    const int64_t *found =
        bsearch(&place, self->places, self->n, sizeof *self->places, compare_places);
    return (uint32_t)(found - self->places);
}

/* Leave of each move what no later one covers; *n and *moves become those, by position. */
static sds_status keep_the_last(size_t *n, move **moves)
{
    cells target;
    move *kept = NULL;
    sds_status status = make_cells(*n, *moves, &target);
    if (status == SDS_OK && (kept = malloc(target.n * sizeof *kept)) == NULL) status = SDS_ENOMEM;
    if (status == SDS_OK) {
        for (size_t i = *n; i-- > 0;) {
            const move *one = &(*moves)[i];
            uint32_t cell = first_free(&target, cell_at(&target, one->position));
            for (; target.places[cell] < one->position + one->length;
                 cell = first_free(&target, cell)) {
                target.filled_by[cell] = (uint32_t)i;
                target.next[cell] = cell + 1;
            }
        }
        size_t n_kept = 0;
        for (size_t c = 0; c < target.n; c++) {
            if (target.filled_by[c] == UINT32_MAX) continue;
            const move *by = &(*moves)[target.filled_by[c]];
            const int64_t begin = target.places[c];
            n_kept = append(
                kept, n_kept,
                (move){by->offset + (begin - by->position), target.places[c + 1] - begin, begin});
        }
        free(*moves);
        *moves = kept;
        *n = n_kept;
    }
    free_cells(&target);
    return status;
}

/* Have the moves disjoint in the target. */
static sds_status settle_overlaps(size_t *n, move **moves)
{
    if (are_disjoint_in_order(*n, *moves)) return SDS_OK;
    int disjoint;
    const sds_status status = are_disjoint(*n, *moves, &disjoint);
    return status != SDS_OK || disjoint ? status : keep_the_last(n, moves);
}

static sds_status sort_and_join(size_t *n, sds_piece pieces[])
{
    int is_sorted = 1;
    for (size_t i = 1; i < *n; i++)
        is_sorted &= pieces[i - 1].offset <= pieces[i].offset;
    if (is_sorted) return SDS_OK; /* and joined when they were cut */
    sds_piece *scratch = malloc(*n * sizeof *scratch);
    if (scratch == NULL) return SDS_ENOMEM;
    sds_pieces_sort(*n, pieces, scratch);
    free(scratch);
    size_t n_joined = 0;
    for (size_t i = 0; i < *n; i++)
        n_joined = append(pieces, n_joined, pieces[i]);
    *n = n_joined;
    return SDS_OK;
}

static sds_status check_list(const sds_list *list, int64_t *file_bytes, sds_list_fault *fault)
{
    int64_t memory_bytes;
    sds_status status = check_regions(&list->in_file, 0, file_bytes, fault);
    if (status != SDS_OK) return status;
    if (list->is_packed) {
        const int64_t begin = 0, sum = *file_bytes;
        const sds_regions whole = {.n = 1, .offsets = &begin, .length = sum};
        return check_within_memory(&whole, list->memory_bytes, fault);
    }
    status = check_regions(&list->in_memory, 1, &memory_bytes, fault);
    if (status == SDS_OK && *file_bytes != memory_bytes)
        status = sds__list_fail(fault, (sds_list_fault){
                                           .rule = SDS_LIST_SUMS_DIFFER,
                                           .file_bytes = *file_bytes,
                                           .memory_bytes = memory_bytes,
                                       });
    if (status == SDS_OK) status = check_within_memory(&list->in_memory, list->memory_bytes, fault);
    return status;
}

sds_status sds_list_pieces(const sds_list *list, sds_list_target target, size_t *n,
                           sds_piece **pieces, sds_list_fault *fault)
{
    const int64_t begin = 0;
    int64_t n_bytes;
    *n = 0;
    *pieces = NULL;
    if (fault != NULL) fault->is_set = 0;
    sds_status status = check_list(list, &n_bytes, fault);
    if (status != SDS_OK || n_bytes == 0) return status;
    const sds_regions packed = {.n = 1, .offsets = &begin, .length = n_bytes};
    const sds_regions *in_memory = list->is_packed ? &packed : &list->in_memory;
    const int is_read = target == SDS_LIST_INTO_MEMORY;
    if (list->in_file.n + in_memory->n >= MAX_REGIONS) return SDS_ELIMIT;
    move *moves = malloc((list->in_file.n + in_memory->n) * sizeof *moves);
    if (moves == NULL) return SDS_ENOMEM;
    size_t n_moves =
        cut(is_read ? &list->in_file : in_memory, is_read ? in_memory : &list->in_file, moves);
    status = settle_overlaps(&n_moves, &moves);
    if (!is_read) turn_around(n_moves, moves);
    if (status == SDS_OK) status = sort_and_join(&n_moves, moves);
    if (status != SDS_OK) {
        free(moves);
        return status;
    }
    *n = n_moves;
    *pieces = moves;
    return SDS_OK;
}
