// The latest few of something, linked, the newest first: as much memory as there is need for.
#pragma once

#include <stddef.h>
#include <stdlib.h>

namespace sds::vol
{

// Put one in front, in memory of n bytes, the same for all: new, or the oldest's where there are so
// many already. Returns nullptr where memory is exhausted. Node: begins with Node *next.
template <typename Node> Node *put_in_front(Node *&newest, int most, size_t n_bytes)
{
    Node **last = &newest; // who points to the oldest
    int n = 0;
    for (Node **each = &newest; *each; each = &(*each)->next) {
        last = each;
        n++;
    }
    Node *made = *last;
    if (n < most)
        made = static_cast<Node *>(malloc(n_bytes));
    else
        *last = nullptr;
    if (!made) return nullptr;
    made->next = newest;
    newest = made;
    return made;
}

template <typename Node> void free_all(Node *newest)
{
    while (newest) {
        Node *next = newest->next;
        free(newest);
        newest = next;
    }
}

} // namespace sds::vol
