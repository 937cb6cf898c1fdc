#include "ops/select.h"

#include <string.h>

#include "base/check.h"

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Quickselect with a pivot from a fixed pseudo-random walk: no input is slow but by bad luck, and none is favoured. */
uint64_t select_largest(uint64_t *ranks, size_t n, size_t k)
{
    CHECK(k > 0 && k < n);
    size_t low = 0, high = n; /* the border between kept and dropped lies in [low, high] */
    uint64_t walk = 0x9e3779b97f4a7c15u ^ n;
    while (high - low > 1) {
        walk ^= walk << 13;
        walk ^= walk >> 7;
        walk ^= walk << 17;
        swap(&ranks[low], &ranks[low + walk % (high - low)]);
        uint64_t pivot = ranks[low];
        size_t border = low;
        for (size_t i = low + 1; i < high; i++) { /* without a branch, which would be guessed wrong half the time */
            swap(&ranks[i], &ranks[border + 1]);
            border += ranks[border + 1] > pivot;
        }
        swap(&ranks[low], &ranks[border]);
        /* ranks[border] is the pivot, everything before it is larger. */
        if (border + 1 == k)
            return pivot;
        if (border + 1 < k)
            low = border + 1;
        else
            high = border;
    }
    return ranks[k - 1];
}

void select_positions(uint32_t *out, uint32_t *scratch, const uint64_t *ranks, size_t n)
{
    enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
    uint32_t highest = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = select_position(ranks[i]);
        highest = out[i] > highest ? out[i] : highest;
    }
    for (unsigned shift = 0; shift < 32 && highest >> shift > 0; shift += DIGIT_BITS) {
        uint32_t starts[DIGITS] = {0}, sum = 0;
        for (size_t i = 0; i < n; i++)
            starts[out[i] >> shift & (DIGITS - 1)]++;
        for (size_t d = 0; d < DIGITS; d++) {
            uint32_t count = starts[d];
            starts[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            scratch[starts[out[i] >> shift & (DIGITS - 1)]++] = out[i];
        memcpy(out, scratch, n * sizeof *out);
    }
}
