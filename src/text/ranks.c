#include "text/ranks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/arena.h"

/* Where the reader stands in the file. */
struct reader {
    const char *next, *end;
    const char *path;
    size_t line; /* of the last line read, from 1 */
};

/* The next line that is not empty, without its end. */
static bool read_line(struct reader *reader, struct byte_span *line)
{
    while (reader->next < reader->end) {
        const char *start = reader->next;
        const char *stop = memchr(start, '\n', (size_t)(reader->end - start));
        reader->next = stop ? stop + 1 : reader->end;
        reader->line++;
        stop = stop ? stop : reader->end;
        if (stop > start && stop[-1] == '\r')
            stop--;
        *line = (struct byte_span){start, (size_t)(stop - start)};
        if (line->bytes)
            return true;
    }
    return false;
}

static int sextet_of(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

/* Decodes padded base64 into `out` (3 bytes for 4 letters); gives the number of bytes, 0 if it is no
 * base64. */
static size_t decode_base64(const char *text, size_t letters, char *out)
{
    if (letters == 0 || letters % 4)
        return 0;
    size_t padding = text[letters - 1] != '=' ? 0 : text[letters - 2] != '=' ? 1 : 2;
    size_t bytes = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < letters; i++) {
        int sextet = i < letters - padding ? sextet_of(text[i]) : 0;
        if (sextet < 0)
            return 0;
        bits = bits << 6 | (uint32_t)sextet;
        if (i % 4 == 3) {
            out[bytes++] = (char)(bits >> 16);
            out[bytes++] = (char)(bits >> 8);
            out[bytes++] = (char)bits;
            bits = 0;
        }
    }
    return bytes - padding;
}

/* A decimal number of at most 9 digits, or -1. */
static int64_t parse_rank(const char *text, size_t digits)
{
    if (digits == 0 || digits > 9)
        return -1;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* Reads one line: the bytes go to ranks->bytes + *used, their place under the rank. */
static enum status read_token(struct ranks *ranks, const struct reader *reader, struct byte_span line, size_t *used,
                              struct error *err)
{
    const char *space = memchr(line.data, ' ', line.bytes);
    size_t letters = space ? (size_t)(space - line.data) : line.bytes;
    int64_t rank = space ? parse_rank(space + 1, line.bytes - letters - 1) : -1;
    if (rank < 0)
        return error_set(err, STATUS_FORMAT, "%s line %zu: want `base64 rank`, found `%.*s`; is this a tiktoken file?",
                         reader->path, reader->line, line.bytes > 60 ? 60 : (int)line.bytes, line.data);
    size_t bytes = decode_base64(line.data, letters, ranks->bytes + *used);
    if (bytes == 0 || bytes > RANKS_TOKEN_BYTES_MAX)
        return error_set(err, STATUS_FORMAT, "%s line %zu: want base64 of 1 to %d bytes, found `%.*s`", reader->path,
                         reader->line, RANKS_TOKEN_BYTES_MAX, letters > 60 ? 60 : (int)letters, line.data);
    if (rank >= ranks->count)
        return error_set(err, STATUS_FORMAT,
                         "%s line %zu: rank %lld, but the %u lines must hold the ranks 0 to %u without gaps",
                         reader->path, reader->line, (long long)rank, ranks->count, ranks->count - 1);
    if (ranks->lengths[rank])
        return error_set(err, STATUS_FORMAT, "%s line %zu: rank %lld is there twice", reader->path, reader->line,
                         (long long)rank);
    ranks->starts[rank] = (uint32_t)*used;
    ranks->lengths[rank] = (uint32_t)bytes;
    if (bytes > ranks->longest_bytes)
        ranks->longest_bytes = (uint32_t)bytes;
    *used += bytes;
    return STATUS_OK;
}

/* The slot that holds these bytes, or the free one where they belong. */
static struct ranks_slot *find_slot(const struct ranks *ranks, const char *bytes, size_t count, uint32_t *tag)
{
    uint64_t hash = XXH3_64bits(bytes, count);
    *tag = (uint32_t)hash;
    for (uint32_t at = (uint32_t)(hash >> 32) & ranks->slot_mask;; at = (at + 1) & ranks->slot_mask) {
        struct ranks_slot *slot = &ranks->slots[at];
        if (slot->rank_and_one == 0)
            return slot;
        uint32_t rank = slot->rank_and_one - 1;
        if (slot->tag == *tag && ranks->lengths[rank] == count &&
            memcmp(ranks->bytes + ranks->starts[rank], bytes, count) == 0)
            return slot;
    }
}

static enum status index_tokens(struct ranks *ranks, const char *path, struct error *err)
{
    uint32_t slots = 1024;
    while (slots < 2 * ranks->count)
        slots *= 2;
    TRY(memory_take(&ranks->slots, slots, sizeof *ranks->slots, "the tokenizer's index", err));
    ranks->slot_mask = slots - 1;
    for (uint32_t rank = 0; rank < ranks->count; rank++) {
        struct byte_span token = ranks_bytes(ranks, (int32_t)rank);
        uint32_t tag;
        struct ranks_slot *slot = find_slot(ranks, token.data, token.bytes, &tag);
        if (slot->rank_and_one)
            return error_set(err, STATUS_FORMAT, "%s: the ranks %u and %u are the same token", path,
                             slot->rank_and_one - 1, rank);
        *slot = (struct ranks_slot){tag, rank + 1};
    }
    for (int byte = 0; byte < 256; byte++) {
        ranks->byte_ranks[byte] = ranks_find(ranks, &(char){(char)byte}, 1);
        if (ranks->byte_ranks[byte] < 0)
            return error_set(err, STATUS_FORMAT, "%s: every single byte must be a token, byte 0x%02x is not", path,
                             (unsigned)byte);
    }
    return STATUS_OK;
}

static enum status load(struct ranks *ranks, const char *data, size_t bytes, const char *path, struct error *err)
{
    struct reader reader = {data, data + bytes, path, 0};
    struct byte_span line;
    size_t lines = 0;
    if (bytes > RANKS_FILE_BYTES_MAX)
        return error_set(err, STATUS_FORMAT, "%s: at most %d bytes are read here, the file has %zu", path,
                         RANKS_FILE_BYTES_MAX, bytes);
    while (read_line(&reader, &line))
        lines++;
    if (lines < 256 || lines > RANKS_MAX)
        return error_set(err, STATUS_FORMAT, "%s: want 256 to %d tokens, one a line, found %zu", path, RANKS_MAX,
                         lines);
    ranks->count = (uint32_t)lines;
    TRY(memory_take(&ranks->bytes, bytes, 1, "the tokenizer", err));
    TRY(memory_take(&ranks->starts, lines, sizeof *ranks->starts, "the tokenizer", err));
    TRY(memory_take(&ranks->lengths, lines, sizeof *ranks->lengths, "the tokenizer", err));
    reader = (struct reader){data, data + bytes, path, 0};
    size_t used = 0;
    while (read_line(&reader, &line))
        TRY(read_token(ranks, &reader, line, &used, err));
    return index_tokens(ranks, path, err);
}

enum status ranks_init(struct ranks *ranks, const char *data, size_t bytes, const char *path, struct error *err)
{
    *ranks = (struct ranks){0};
    enum status status = load(ranks, data, bytes, path, err);
    if (status != STATUS_OK)
        ranks_fini(ranks);
    return status;
}

void ranks_fini(struct ranks *ranks)
{
    free(ranks->bytes);
    free(ranks->starts);
    free(ranks->lengths);
    free(ranks->slots);
    *ranks = (struct ranks){0};
}

int32_t ranks_find(const struct ranks *ranks, const char *bytes, size_t count)
{
    if (count > ranks->longest_bytes)
        return -1;
    uint32_t tag;
    return (int32_t)find_slot(ranks, bytes, count, &tag)->rank_and_one - 1;
}

struct byte_span ranks_bytes(const struct ranks *ranks, int32_t rank)
{
    return (struct byte_span){ranks->bytes + ranks->starts[rank], ranks->lengths[rank]};
}
