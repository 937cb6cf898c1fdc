#include "text/pretokenizer.h"

#include <stdbool.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/arena.h"
#include "text/utf8.h"

/* The vendor writes [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]. PCRE2 has no intersection in classes, but
 * the categories divide all characters, so the same class is the complement of the other categories and of
 * Han. The script is written sc:Han because a bare \p{Han} matches script extensions, which takes in
 * punctuation such as U+3001; white space is spelled out because PCRE2's \s has U+180E. */
#define LATER_HAN "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define HAN "\\p{sc:Han}" LATER_HAN
#define LETTER "\\p{L}" LATER_HAN
#define SPACE "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NO_WORD "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN
#define UPPER "[^\\p{Ll}" NO_WORD "]"
#define LOWER "[^\\p{Lu}\\p{Lt}" NO_WORD "]"
#define LEAD "[^\\r\\n" LETTER "\\p{N}]?"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const char pattern[] = "[" HAN "]+"
                              "|" LEAD UPPER "*" LOWER "+" SUFFIX "|" LEAD UPPER "+" LOWER "*" SUFFIX "|\\p{N}{1,3}"
                              "| ?[^" SPACE LETTER "\\p{N}]+[\\r\\n]*"
                              "|[" SPACE "]*[\\r\\n]+"
                              "|[" SPACE "]+(?![^" SPACE "])"
                              "|[" SPACE "]+";

struct pretokenizer {
    pcre2_code *code;
};

enum status pretokenizer_open(struct pretokenizer **out, struct error *err)
{
    int code;
    size_t offset;
    TRY(memory_take(out, 1, sizeof **out, "the pre-tokenizer", err));
    (*out)->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                                 &code, &offset, NULL);
    if (!(*out)->code) {
        pretokenizer_close(*out);
        *out = NULL;
        return error_set(
            err, STATUS_UNSUPPORTED,
            "PCRE2 cannot compile the pre-tokenizer (error %d at %zu); it needs version 10.40 with Unicode", code,
            offset);
    }
    pcre2_jit_compile((*out)->code, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
    return STATUS_OK;
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
    if (pretokenizer)
        pcre2_code_free(pretokenizer->code);
    free(pretokenizer);
}

enum status pretokenizer_begin(struct pretokenizer_cursor *cursor, const struct pretokenizer *pretokenizer,
                               const char *text, size_t bytes, struct error *err)
{
    *cursor = (struct pretokenizer_cursor){.pretokenizer = pretokenizer};
    cursor->next = cursor->slice = cursor->slice_end = text;
    cursor->end = bytes ? text + bytes : text;
    cursor->match_data = pcre2_match_data_create(1, NULL);
    cursor->match_context = pcre2_match_context_create(NULL);
    bool is_long = bytes > PRETOKENIZER_SHORT_BYTES_MAX;
    if (is_long)
        cursor->jit_stack = pcre2_jit_stack_create(32 << 10, PRETOKENIZER_STACK_BYTES_MAX, NULL);
    if (!cursor->match_data || !cursor->match_context || (is_long && !cursor->jit_stack)) {
        pretokenizer_end(cursor);
        return error_set(err, STATUS_MEMORY, "cannot allocate memory to split text; free memory and try again");
    }
    pcre2_set_match_limit(cursor->match_context, UINT32_MAX);
    pcre2_jit_stack_assign(cursor->match_context, NULL, cursor->jit_stack);
    return STATUS_OK;
}

void pretokenizer_end(struct pretokenizer_cursor *cursor)
{
    pcre2_match_data_free(cursor->match_data);
    pcre2_match_context_free(cursor->match_context);
    pcre2_jit_stack_free(cursor->jit_stack);
    *cursor = (struct pretokenizer_cursor){0};
}

/* Where the run of bytes that are no UTF-8 ends; `at` itself where there is none. */
static const char *skip_invalid(const char *at, const char *end)
{
    while (at < end) {
        struct utf8_step step = utf8_step(at, (size_t)(end - at));
        if (step.kind == UTF8_VALID)
            break;
        at += step.bytes;
    }
    return at;
}

/* Makes the cut that begins at cursor->next, which is valid UTF-8. */
static void cut_slice(struct pretokenizer_cursor *cursor)
{
    const char *at = cursor->next;
    size_t run = 0;
    bool run_is_space = false;
    if (cursor->part_characters == PRETOKENIZER_PART_CHARACTERS)
        cursor->part_characters = 0;
    for (; at < cursor->end && cursor->part_characters < PRETOKENIZER_PART_CHARACTERS; cursor->part_characters++) {
        struct utf8_step step = utf8_step(at, (size_t)(cursor->end - at));
        if (step.kind != UTF8_VALID)
            break;
        bool is_space = utf8_is_space(step.code);
        run = is_space == run_is_space ? run + 1 : 1;
        run_is_space = is_space;
        if (run > PRETOKENIZER_RUN_CHARACTERS)
            break;
        at += step.bytes;
    }
    cursor->slice = cursor->next;
    cursor->slice_end = at;
}

enum status pretokenizer_next(struct pretokenizer_cursor *cursor, struct byte_span *piece, struct error *err)
{
    const char *start = cursor->next;
    *piece = (struct byte_span){start, 0};
    if (start == cursor->end)
        return STATUS_OK;
    if (start == cursor->slice_end) {
        const char *valid = skip_invalid(start, cursor->end);
        if (valid > start) {
            cursor->next = cursor->slice_end = valid;
            piece->bytes = (size_t)(valid - start);
            return STATUS_OK;
        }
        cut_slice(cursor);
    }
    int result =
        pcre2_match(cursor->pretokenizer->code, (PCRE2_SPTR)cursor->slice, (size_t)(cursor->slice_end - cursor->slice),
                    (size_t)(start - cursor->slice), PCRE2_NO_UTF_CHECK, cursor->match_data, cursor->match_context);
    size_t *bounds = pcre2_get_ovector_pointer(cursor->match_data);
    if (result < 0 || bounds[1] <= bounds[0])
        return error_set(err, STATUS_UNSUPPORTED, "the pre-tokenizer cannot split the text: PCRE2 error %d", result);
    piece->bytes = bounds[1] - bounds[0];
    cursor->next = start + piece->bytes;
    return STATUS_OK;
}
