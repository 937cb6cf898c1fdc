#include "text/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/arena.h"

enum { SHORT_BYTES_MAX = 64 };

#define NO_PAIR UINT32_MAX

/* The rank of the bytes [start, end), as a merge: the lower the earlier. */
static uint32_t pair_rank(const struct ranks *ranks, const char *piece, size_t start, size_t end)
{
    return (uint32_t)ranks_find(ranks, piece + start, end - start);
}

/* Parts lie in arrays: starts[i] is where part i begins, pairs[i] the rank of part i joined with the next. */
static enum status encode_short(const struct ranks *ranks, const char *piece, size_t bytes, struct token_list *out,
                                struct error *err)
{
    uint32_t pairs[SHORT_BYTES_MAX + 1] = {NO_PAIR}; /* a piece has a byte at least */
    int32_t ids[SHORT_BYTES_MAX];
    unsigned char starts[SHORT_BYTES_MAX + 1];
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++) {
        starts[i] = (unsigned char)i;
        ids[i] = ranks->byte_ranks[(unsigned char)piece[i]];
        pairs[i] = i + 1 < bytes ? pair_rank(ranks, piece, i, i + 2) : NO_PAIR;
    }
    starts[bytes] = (unsigned char)bytes;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (pairs[i] < pairs[best])
                best = i;
        if (pairs[best] == NO_PAIR)
            break;
        ids[best] = (int32_t)pairs[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            starts[i] = starts[i + 1];
            ids[i] = ids[i + 1];
            pairs[i] = pairs[i + 1];
        }
        starts[count] = (unsigned char)bytes;
        pairs[best] = best + 1 < count ? pair_rank(ranks, piece, starts[best], starts[best + 2]) : NO_PAIR;
        if (best > 0)
            pairs[best - 1] = pair_rank(ranks, piece, starts[best - 1], starts[best + 1]);
    }
    for (size_t i = 0; i < count; i++)
        TRY(token_list_push(out, ids[i], err));
    return STATUS_OK;
}

/* A long piece: parts are named by the offset of their first byte and linked both ways. */
struct part {
    uint32_t next, previous; /* offsets; next == bytes at the last */
    uint32_t pair;           /* rank of this part joined with the next, NO_PAIR where it is no token */
    int32_t id;              /* -1 once merged into its left neighbour */
};

/* The pairs still to look at, smallest (rank << 32 | offset) on top. An entry whose part is gone or whose
 * pair has changed is skipped when it comes up. Every merge adds at most two, so 3 * bytes entries are room
 * enough. */
struct heap {
    uint64_t *keys;
    size_t count;
};

static void heap_sink(struct heap *heap, size_t at)
{
    uint64_t key = heap->keys[at];
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child])
            child++;
        if (heap->keys[child] >= key)
            break;
        heap->keys[at] = heap->keys[child];
    }
    heap->keys[at] = key;
}

static void heap_push(struct heap *heap, uint64_t key)
{
    size_t at = heap->count++;
    for (size_t parent; at > 0 && heap->keys[parent = (at - 1) / 2] > key; at = parent)
        heap->keys[at] = heap->keys[parent];
    heap->keys[at] = key;
}

static uint64_t heap_pop(struct heap *heap)
{
    uint64_t top = heap->keys[0];
    heap->keys[0] = heap->keys[--heap->count];
    if (heap->count)
        heap_sink(heap, 0);
    return top;
}

static uint64_t key_of(const struct part *parts, uint32_t at)
{
    return (uint64_t)parts[at].pair << 32 | at;
}

static void init_parts(const struct ranks *ranks, const char *piece, uint32_t bytes, struct part *parts,
                       struct heap *heap)
{
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t pair = i + 1 < bytes ? pair_rank(ranks, piece, i, i + 2) : NO_PAIR;
        parts[i] = (struct part){i + 1, i - 1, pair, ranks->byte_ranks[(unsigned char)piece[i]]};
        if (pair != NO_PAIR)
            heap->keys[heap->count++] = key_of(parts, i);
    }
    for (size_t i = heap->count / 2; i-- > 0;)
        heap_sink(heap, i);
}

/* The pair of part `at` after a merge beside or at it. */
static void refresh(const struct ranks *ranks, const char *piece, uint32_t bytes, struct part *parts, struct heap *heap,
                    uint32_t at)
{
    uint32_t next = parts[at].next;
    parts[at].pair = next < bytes ? pair_rank(ranks, piece, at, parts[next].next) : NO_PAIR;
    if (parts[at].pair != NO_PAIR)
        heap_push(heap, key_of(parts, at));
}

static void merge_parts(const struct ranks *ranks, const char *piece, uint32_t bytes, struct part *parts,
                        struct heap *heap)
{
    while (heap->count) {
        uint64_t key = heap_pop(heap);
        uint32_t at = (uint32_t)key;
        if (parts[at].id < 0 || key_of(parts, at) != key)
            continue;
        uint32_t gone = parts[at].next, next = parts[gone].next;
        parts[at].id = (int32_t)parts[at].pair;
        parts[at].next = next;
        parts[gone].id = -1;
        if (next < bytes)
            parts[next].previous = at;
        refresh(ranks, piece, bytes, parts, heap, at);
        if (at > 0)
            refresh(ranks, piece, bytes, parts, heap, parts[at].previous);
    }
}

static enum status encode_long(const struct ranks *ranks, const char *piece, uint32_t bytes, struct token_list *out,
                               struct error *err)
{
    struct part *parts = NULL;
    struct heap heap = {0};
    enum status status = memory_take(&parts, bytes, sizeof *parts, "a long piece of text", err);
    if (status == STATUS_OK)
        status = memory_take(&heap.keys, bytes, 3 * sizeof *heap.keys, "a long piece of text", err);
    if (status == STATUS_OK)
        init_parts(ranks, piece, bytes, parts, &heap);
    if (status == STATUS_OK)
        merge_parts(ranks, piece, bytes, parts, &heap);
    for (uint32_t at = 0; status == STATUS_OK && at < bytes; at = parts[at].next)
        status = token_list_push(out, parts[at].id, err);
    free(parts);
    free(heap.keys);
    return status;
}

enum status bpe_encode(const struct ranks *ranks, const char *piece, size_t bytes, struct token_list *out,
                       struct error *err)
{
    int32_t whole = ranks_find(ranks, piece, bytes);
    if (whole >= 0)
        return token_list_push(out, whole, err);
    if (bytes <= SHORT_BYTES_MAX)
        return encode_short(ranks, piece, bytes, out, err);
    if (bytes > BPE_PIECE_BYTES_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "a piece of %zu bytes without a break; at most %d are encoded", bytes,
                         BPE_PIECE_BYTES_MAX);
    return encode_long(ranks, piece, (uint32_t)bytes, out, err);
}
