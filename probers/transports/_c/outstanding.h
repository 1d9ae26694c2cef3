/* The probes of one transport that are under way: `Outstanding` in probers/transports/exchange.py.
 * A table by nonce, a heap by deadline, and the latest that are over, by which duplicate and late
 * replies are told from foreign ones.
 */
#ifndef SKELETONHUNTER_OUTSTANDING_H
#define SKELETONHUNTER_OUTSTANDING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REMEMBERED 512

typedef struct {
    int64_t monotonic_ns, realtime_ns;
} Instant;

typedef enum { AWAITED, ANSWERED, LATE } Stage;

typedef struct {
    uint64_t nonce;
    int64_t posted_ns, posted_offset_ns, timeout_ns, token;
    int32_t next; /* of the same bucket, or of the free list; -1: none */
    uint8_t stage;
} Entry;

typedef struct {
    int64_t deadline_ns;
    uint64_t nonce;
} Deadline;

typedef struct {
    Entry *entries;
    int32_t entries_room, entries_free, *buckets;
    uint32_t bucket_mask;
    uint64_t over[REMEMBERED];
    int over_first, over_count;
    Deadline *heap;
    Py_ssize_t heap_count, heap_room;
} Outstanding;

/* An empty table has no free entry. */
static void outstanding_begin(Outstanding *all) { all->entries_free = -1; }

static void outstanding_end(Outstanding *all) {
    free(all->entries);
    free(all->buckets);
    free(all->heap);
}

static uint32_t bucket_of(const Outstanding *all, uint64_t nonce) {
    return (uint32_t)(nonce ^ nonce >> 32) & all->bucket_mask;
}

static Entry *find(Outstanding *all, uint64_t nonce) {
    if (all->buckets == NULL)
        return NULL;
    for (int32_t i = all->buckets[bucket_of(all, nonce)]; i >= 0; i = all->entries[i].next)
        if (all->entries[i].nonce == nonce)
            return &all->entries[i];
    return NULL;
}

/* Double the room for entries; as many buckets as entries. */
static int grow(Outstanding *all) {
    int32_t room = all->entries_room ? all->entries_room * 2 : 64;
    if (room > 1 << 24)
        return -1;
    Entry *entries = realloc(all->entries, (size_t)room * sizeof *entries);
    if (entries == NULL)
        return -1;
    all->entries = entries;
    int32_t *buckets = realloc(all->buckets, (size_t)room * sizeof *buckets);
    if (buckets == NULL)
        return -1;
    all->buckets = buckets;
    all->bucket_mask = (uint32_t)room - 1;
    memset(buckets, 0xFF, (size_t)room * sizeof *buckets);
    /* It grows only when nothing is free: all entries so far are in use. */
    for (int32_t i = 0; i < all->entries_room; i++) {
        uint32_t b = bucket_of(all, entries[i].nonce);
        entries[i].next = buckets[b];
        buckets[b] = i;
    }
    for (int32_t i = all->entries_room; i < room; i++)
        entries[i].next = i + 1 < room ? i + 1 : -1;
    all->entries_free = all->entries_room;
    all->entries_room = room;
    return 0;
}

static void forget(Outstanding *all, uint64_t nonce) {
    int32_t *link = &all->buckets[bucket_of(all, nonce)];
    while (*link >= 0 && all->entries[*link].nonce != nonce)
        link = &all->entries[*link].next;
    int32_t i = *link;
    if (i < 0)
        return;
    *link = all->entries[i].next;
    all->entries[i].next = all->entries_free;
    all->entries_free = i;
}

static int earlier(const Deadline *a, const Deadline *b) {
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->nonce < b->nonce;
}

static int heap_push(Outstanding *all, Deadline added) {
    if (all->heap_count == all->heap_room) {
        Py_ssize_t room = all->heap_room ? all->heap_room * 2 : 64;
        Deadline *heap = realloc(all->heap, (size_t)room * sizeof *heap);
        if (heap == NULL)
            return -1;
        all->heap = heap;
        all->heap_room = room;
    }
    Py_ssize_t at = all->heap_count++;
    while (at > 0 && earlier(&added, &all->heap[(at - 1) / 2])) {
        all->heap[at] = all->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    all->heap[at] = added;
    return 0;
}

static Deadline heap_pop(Outstanding *all) {
    Deadline first = all->heap[0], last = all->heap[--all->heap_count];
    Py_ssize_t at = 0;
    for (;;) {
        Py_ssize_t child = 2 * at + 1;
        if (child >= all->heap_count)
            break;
        if (child + 1 < all->heap_count && earlier(&all->heap[child + 1], &all->heap[child]))
            child++;
        if (!earlier(&all->heap[child], &last))
            break;
        all->heap[at] = all->heap[child];
        at = child;
    }
    all->heap[at] = last;
    return first;
}

/* Await the answer to a probe; -1: no memory. Its nonce is not in the table. */
static int remember(Outstanding *all, uint64_t nonce, Instant posted, int64_t timeout_ns,
                    int64_t token) {
    if (all->entries_free < 0 && grow(all) < 0)
        return -1;
    Deadline deadline = {posted.monotonic_ns + timeout_ns, nonce};
    if (heap_push(all, deadline) < 0)
        return -1;
    int32_t i = all->entries_free;
    Entry *entry = &all->entries[i];
    all->entries_free = entry->next;
    uint32_t b = bucket_of(all, nonce);
    *entry = (Entry){.nonce = nonce,
                     .posted_ns = posted.monotonic_ns,
                     .posted_offset_ns = posted.realtime_ns - posted.monotonic_ns,
                     .timeout_ns = timeout_ns,
                     .token = token,
                     .next = all->buckets[b],
                     .stage = AWAITED};
    all->buckets[b] = i;
    return 0;
}

static void finish(Outstanding *all, Entry *entry, int answered) {
    entry->stage = answered ? ANSWERED : LATE;
    if (all->over_count == REMEMBERED) {
        uint64_t oldest = all->over[all->over_first];
        all->over[all->over_first] = entry->nonce;
        all->over_first = (all->over_first + 1) % REMEMBERED;
        forget(all, oldest);
    } else {
        all->over[(all->over_first + all->over_count++) % REMEMBERED] = entry->nonce;
    }
}

#endif
