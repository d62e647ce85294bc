#include "extent_merge.h"

#include "arithmetic.h"

static void swap_sources(sds__source **a, sds__source **b)
{
    sds__source *kept = *a;
    *a = *b;
    *b = kept;
}

static void sink(sds__extent_merge *merge, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < merge->n; child++)
            if (merge->sources[child]->now.offset < merge->sources[least]->now.offset)
                least = child;
        if (least == at) return;
        swap_sources(&merge->sources[at], &merge->sources[least]);
        at = least;
    }
}

/* Let the first source give its next range, or drop it. */
static void step(sds__extent_merge *merge)
{
    sds__source *first = merge->sources[0];
    if (!first->next(first, &first->now)) merge->sources[0] = merge->sources[--merge->n];
    sink(merge, 0);
}

void sds__extent_merge_init(sds__extent_merge *merge, size_t n, sds__source *sources[])
{
    merge->n = 0;
    merge->sources = sources;
    for (size_t i = 0; i < n; i++) {
        sds__source *source = sources[i];
        if (source->next(source, &source->now)) sources[merge->n++] = source;
    }
    for (size_t i = merge->n / 2; i-- > 0;)
        sink(merge, i);
}

int sds__extent_merge_next(sds__extent_merge *merge, sds_extent *out)
{
    if (merge->n == 0) return 0;
    const int64_t begin = merge->sources[0]->now.offset;
    int64_t end = begin;
    while (merge->n > 0 && merge->sources[0]->now.offset <= end) {
        const sds_extent *now = &merge->sources[0]->now;
        end = sds__greatest(end, now->offset + now->length);
        step(merge);
    }
    *out = (sds_extent){begin, end - begin};
    return 1;
}
