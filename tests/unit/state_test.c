/* Pages and sequences: counting of references, copies on write, and failures that change nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "state/sequence.h"

static struct error err;

static void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static void pages_are_counted(void **state)
{
    (void)state;
    enum { N = 5 };
    struct pages pages;
    uint32_t taken[N];
    must(pages_init(&pages, 256, N, &err));
    for (uint32_t i = 0; i < N; i++) {
        taken[i] = pages_take(&pages);
        assert_true(taken[i] < N);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(taken[i], taken[k]);
        memset(pages_at(&pages, taken[i]), (int)i + 1, pages.page_bytes); /* all of it is ours */
    }
    assert_int_equal(pages_take(&pages), PAGE_NONE);
    assert_int_equal(pages.n_free, 0);
    pages_share(&pages, taken[2]);
    pages_give(&pages, taken[2]);
    assert_int_equal(pages_take(&pages), PAGE_NONE); /* one reference is left */
    pages_give(&pages, taken[2]);
    assert_int_equal(pages.n_free, 1);
    assert_int_equal(pages_take(&pages), taken[2]);
    for (uint32_t i = 0; i < N; i++) {
        const char *bytes = pages_at(&pages, taken[i]);
        for (size_t b = 0; b < pages.page_bytes; b++)
            assert_int_equal(bytes[b], i + 1);
        pages_give(&pages, taken[i]);
    }
    assert_int_equal(pages.n_free, N);
    pages_fini(&pages);
    pages_fini(&pages);
    must(pages_init(&pages, 0, 0, &err)); /* a model without full attention */
    assert_int_equal(pages_take(&pages), PAGE_NONE);
    pages_fini(&pages);
}

/* One full-attention layer with an indexer, two KDA layers. */
static struct mla_slot slot;
static struct state_layout layout;
enum { CONTEXT = 300 };

static void make_layout(void)
{
    slot = (struct mla_slot){.index_dim = 8};
    layout = (struct state_layout){.latent_dtype = DTYPE_F32,
                                   .index_dtype = DTYPE_F32,
                                   .latent_width = 12,
                                   .n_mla = 1,
                                   .mla = &slot,
                                   .n_kda = 2,
                                   .kda_heads = 2,
                                   .kda_head_dim = 5,
                                   .conv_taps = 3};
    layout_complete(&layout);
}

static void open_sequence(struct sequence *sequence, struct pages *pages)
{
    must(sequence_init(sequence, &layout, pages, CONTEXT, &err));
}

/* As a step does: makes room, writes what each new position keeps, goes on. The value of a position is `tag` +
 * position. */
static void append(struct sequence *s, uint32_t n, uint32_t tag)
{
    must(sequence_reserve(s, n, &err));
    for (uint32_t p = s->length; p < s->length + n; p++) {
        uint32_t value = tag + p, *latent = (uint32_t *)(void *)sequence_latent(s, 0, p);
        uint32_t *keys = (uint32_t *)(void *)sequence_index_block(s, 0, p);
        for (uint32_t i = 0; i < layout.latent_width; i++)
            latent[i] = value;
        for (uint32_t d = 0; d < slot.index_dim; d++)
            keys[d * INDEX_BLOCK_KEYS + p % INDEX_BLOCK_KEYS] = value;
    }
    s->kda[0] = (float)(tag + s->length + n);
    s->conv[1] = (float)(tag + s->length + n);
    sequence_advance(s, n);
}

static void assert_holds(const struct sequence *s, uint32_t first, uint32_t end, uint32_t tag)
{
    for (uint32_t p = first; p < end; p++) {
        const uint32_t *latent = (const uint32_t *)(const void *)sequence_latent(s, 0, p);
        const uint32_t *keys = (const uint32_t *)(const void *)sequence_index_block(s, 0, p);
        for (uint32_t i = 0; i < layout.latent_width; i++)
            assert_int_equal(latent[i], tag + p);
        for (uint32_t d = 0; d < slot.index_dim; d++)
            assert_int_equal(keys[d * INDEX_BLOCK_KEYS + p % INDEX_BLOCK_KEYS], tag + p);
    }
}

static uint32_t references_total(const struct pages *pages)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < pages->n_pages; i++)
        total += pages->references[i];
    return total;
}

/* Original and copy go on differently, from lengths at, before and behind page borders; neither sees the other. */
static void copies_part_ways(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {0, 1, 63, 64, 65, 100, 127, 128, 200};
    make_layout();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int copy_first = 0; copy_first < 2; copy_first++) {
            struct pages pages;
            struct sequence original, copy;
            uint32_t n = lengths[i], full = n / PAGE_TOKENS;
            must(pages_init(&pages, layout.page_bytes, 12, &err));
            open_sequence(&original, &pages);
            open_sequence(&copy, &pages);
            append(&copy, 70, 7000); /* what it held is given back */
            append(&original, n, 1000);
            sequence_copy(&copy, &original);
            assert_int_equal(pages.n_free, pages.n_pages - (n + PAGE_TOKENS - 1) / PAGE_TOKENS);
            assert_holds(&copy, 0, n, 1000);
            assert_int_equal(copy.length, n);
            assert_memory_equal(copy.kda, original.kda,
                                layout_recurrent_bytes(&layout) - layout.n_kda * layout.conv_floats * 4);
            append(copy_first ? &copy : &original, 80, copy_first ? 3000 : 2000);
            append(copy_first ? &original : &copy, 80, copy_first ? 2000 : 3000);
            assert_holds(&original, 0, n, 1000);
            assert_holds(&copy, 0, n, 1000);
            assert_holds(&original, n, n + 80, 2000);
            assert_holds(&copy, n, n + 80, 3000);
            assert_true(original.kda[0] != copy.kda[0] && original.conv[1] != copy.conv[1]);
            for (uint32_t p = 0; p < full; p++) /* full pages stay shared */
                assert_int_equal(original.page_table[p], copy.page_table[p]);
            sequence_fini(&original);
            assert_holds(&copy, 0, n, 1000);
            sequence_fini(&copy);
            sequence_fini(&copy);
            assert_int_equal(pages.n_free, pages.n_pages);
            assert_int_equal(references_total(&pages), 0);
            pages_fini(&pages);
        }
}

/* Room that was made and not used (a step that failed elsewhere) is never shared: the next tokens of a copy and of its
 * source would meet in it. */
static void unused_room_is_not_shared(void **state)
{
    (void)state;
    struct pages pages;
    struct sequence original, copy;
    make_layout();
    must(pages_init(&pages, layout.page_bytes, 12, &err));
    open_sequence(&original, &pages);
    open_sequence(&copy, &pages);
    append(&original, 10, 1000);
    must(sequence_reserve(&original, 200, &err));
    sequence_copy(&copy, &original);
    assert_int_equal(pages.n_free, 12 - 4);
    sequence_release(&original);
    assert_int_equal(pages.n_free, 12 - 1);
    must(sequence_reserve(&original, 200, &err));
    append(&original, 200, 2000);
    append(&copy, 200, 3000);
    assert_holds(&original, 10, 210, 2000);
    assert_holds(&copy, 10, 210, 3000);
    sequence_fini(&original);
    sequence_fini(&copy);
    assert_int_equal(references_total(&pages), 0);
    pages_fini(&pages);
}

static void assert_unchanged_by_failure(struct sequence *s, uint32_t n, enum status want)
{
    uint32_t table[8], n_pages = s->n_pages, n_free = s->pages->n_free, length = s->length;
    uint32_t references = references_total(s->pages);
    assert_true(n_pages <= 8);
    memcpy(table, s->page_table, n_pages * sizeof *table);
    assert_int_equal(sequence_reserve(s, n, &err), want);
    assert_true(strlen(err.text) > 20);
    assert_int_equal(s->n_pages, n_pages);
    assert_int_equal(s->length, length);
    assert_int_equal(s->pages->n_free, n_free);
    assert_int_equal(references_total(s->pages), references);
    assert_memory_equal(s->page_table, table, n_pages * sizeof *table);
}

static void failed_reserve_changes_nothing(void **state)
{
    (void)state;
    struct pages pages;
    struct sequence a, b;
    make_layout();
    must(pages_init(&pages, layout.page_bytes, 3, &err));
    open_sequence(&a, &pages);
    open_sequence(&b, &pages);
    append(&a, 100, 1000); /* two pages */
    sequence_copy(&b, &a);
    assert_unchanged_by_failure(&a, CONTEXT - 99, STATUS_ARGUMENT);
    assert_unchanged_by_failure(&a, UINT32_MAX, STATUS_ARGUMENT);
    assert_unchanged_by_failure(&a, 29, STATUS_MEMORY); /* a copy of the second page, and a third: one is free */
    append(&a, 28, 2000);                               /* the copy alone */
    assert_unchanged_by_failure(&a, 1, STATUS_MEMORY);
    append(&b, 28, 3000); /* alone with its page now */
    assert_unchanged_by_failure(&b, 1, STATUS_MEMORY);
    assert_holds(&a, 0, 100, 1000);
    assert_holds(&a, 100, 128, 2000);
    assert_holds(&b, 100, 128, 3000);
    sequence_reset(&a);
    assert_int_equal(a.length, 0);
    for (size_t i = 0; i < layout.n_kda * layout.conv_floats; i++)
        assert_true(a.conv[i] == 0.0f);
    append(&b, 64, 3000);
    assert_holds(&b, 128, 192, 3000);
    must(sequence_reserve(&a, 0, &err));
    sequence_fini(&a);
    sequence_fini(&b);
    assert_int_equal(pages.n_free, 3);
    pages_fini(&pages);
}

/* Many sequences that are fed, copied and emptied at random hold what they were told, and give everything back. */
static void random_lives(void **state)
{
    (void)state;
    enum { SEQUENCES = 6, PAGES = 14, ROUNDS = 4000 };
    struct pages pages;
    struct sequence all[SEQUENCES];
    uint32_t tags[SEQUENCES][CONTEXT] = {{0}}; /* what each position was told */
    struct rng rng = {3};
    make_layout();
    must(pages_init(&pages, layout.page_bytes, PAGES, &err));
    for (int i = 0; i < SEQUENCES; i++)
        open_sequence(&all[i], &pages);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t at = (uint32_t)rng_below(&rng, SEQUENCES), from = (uint32_t)rng_below(&rng, SEQUENCES);
        struct sequence *s = &all[at];
        switch (rng_below(&rng, 8)) {
        case 0:
            sequence_reset(s);
            break;
        case 1:
        case 2:
            if (at == from)
                break;
            sequence_copy(s, &all[from]);
            memcpy(tags[at], tags[from], sizeof tags[at]);
            break;
        case 3:
            (void)!sequence_reserve(s, (uint32_t)rng_below(&rng, 150), &err); /* a step that then fails */
            break;
        default: {
            uint32_t n = (uint32_t)rng_below(&rng, rng_below(&rng, 3) ? 5 : 90), tag = round * 512;
            if (sequence_reserve(s, n, &err) != STATUS_OK)
                break;
            for (uint32_t p = s->length; p < s->length + n; p++)
                tags[at][p] = tag;
            append(s, n, tag);
        }
        }
        for (uint32_t p = 0; p < s->length; p++)
            assert_holds(s, p, p + 1, tags[at][p]);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        for (uint32_t p = 0; p < all[i].length; p++)
            assert_holds(&all[i], p, p + 1, tags[i][p]);
        sequence_fini(&all[i]);
    }
    assert_int_equal(pages.n_free, PAGES);
    assert_int_equal(references_total(&pages), 0);
    pages_fini(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_counted),
        cmocka_unit_test(copies_part_ways),
        cmocka_unit_test(unused_room_is_not_shared),
        cmocka_unit_test(failed_reserve_changes_nothing),
        cmocka_unit_test(random_lives),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
