#include "text/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* An integer of that many bytes, the sign included, fits 64 bits. */
enum { INTEGER_BYTES_SAFE = 18 };

/* ---- reading ---- */

static size_t count_digits(const char *text, size_t bytes)
{
    size_t count = 0;
    while (count < bytes && text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* The length of the JSON number in front of `text`, 0 if there is none. */
static size_t measure_number(const char *text, size_t bytes, bool *is_integer)
{
    size_t at = bytes && text[0] == '-', digits = count_digits(text + at, bytes - at);
    if (digits == 0 || (digits > 1 && text[at] == '0'))
        return 0;
    at += digits;
    *is_integer = true;
    if (at + 1 < bytes && text[at] == '.' && (digits = count_digits(text + at + 1, bytes - at - 1)) > 0) {
        *is_integer = false;
        at += 1 + digits;
    }
    if (at < bytes && (text[at] == 'e' || text[at] == 'E')) {
        size_t sign = at + 1 < bytes && (text[at + 1] == '+' || text[at + 1] == '-');
        digits = count_digits(text + at + 1 + sign, bytes - at - 1 - sign);
        if (digits > 0) {
            *is_integer = false;
            at += 1 + sign + digits;
        }
    }
    return at;
}

/* A number in front of the text that may need quoting: its length, 0 if there is none, and Python's spelling
 * of it, of 0 bytes if jansson holds it exactly. `scratch` gives room to terminate a real. */
static enum status read_number(const char *text, size_t bytes, struct byte_buffer *scratch, size_t *length,
                               struct byte_span *spelling, struct error *err)
{
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    *spelling = (struct byte_span){0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *length = strlen(names[i]);
        if (bytes >= *length && memcmp(text, names[i], *length) == 0) {
            *spelling = (struct byte_span){names[i], *length};
            return STATUS_OK;
        }
    }
    bool is_integer = false;
    *length = measure_number(text, bytes, &is_integer);
    if (is_integer && *length > INTEGER_BYTES_SAFE)
        *spelling = (struct byte_span){text, *length};
    if (is_integer || *length == 0)
        return STATUS_OK;
    size_t mark = scratch->bytes;
    TRY(byte_buffer_append(scratch, text, *length, err));
    TRY(byte_buffer_append(scratch, "", 1, err));
    double value = strtod(scratch->data + mark, NULL);
    scratch->bytes = mark;
    if (isinf(value))
        *spelling = value < 0 ? (struct byte_span){"-Infinity", 9} : (struct byte_span){"Infinity", 8};
    return STATUS_OK;
}

/* Where the string that opens at `at` closes: behind its quote, or at the end of the text. */
static size_t skip_string(const char *text, size_t at, size_t bytes)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < bytes ? at + 1 : bytes;
}

/* Copies the text, every number that jansson cannot hold written as a string led by a zero byte. */
static enum status quote_numbers(const char *text, size_t bytes, struct byte_buffer *out, struct error *err)
{
    static const char zero[] = "\\u0000";
    for (size_t at = 0; at < bytes;) {
        struct byte_span spelling;
        size_t length = 0, start = at;
        if (text[at] == '"') {
            bool led = bytes - at > 6 && memcmp(text + at + 1, zero, 6) == 0;
            at = skip_string(text, at, bytes);
            TRY(byte_buffer_append_text(out, led ? "\"\\u0000" : "\"", err));
            TRY(byte_buffer_append(out, text + start + 1, at - start - 1, err));
            continue;
        }
        if (text[at] && strchr("-0123456789NI", text[at]))
            TRY(read_number(text + at, bytes - at, out, &length, &spelling, err));
        if (length && spelling.bytes) {
            TRY(byte_buffer_append_text(out, "\"\\u0000", err));
            TRY(byte_buffer_append(out, spelling.data, spelling.bytes, err));
            TRY(byte_buffer_append_text(out, "\"", err));
        } else {
            length = length ? length : 1;
            TRY(byte_buffer_append(out, text + at, length, err));
        }
        at += length;
    }
    return STATUS_OK;
}

enum status json_text_parse(const char *text, size_t bytes, json_t **out, struct error *err)
{
    struct byte_buffer quoted = {0};
    json_error_t where;
    *out = NULL;
    enum status status = quote_numbers(text, bytes, &quoted, err);
    if (status == STATUS_OK) {
        *out = json_loadb(quoted.data ? quoted.data : "", quoted.bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
        if (!*out)
            status = error_set(err, STATUS_FORMAT, "line %d: not JSON: %s", where.line, where.text);
    }
    byte_buffer_fini(&quoted);
    return status;
}

/* ---- asking ---- */

static bool is_foreign_number(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && json_string_length(value) > 1 && text[0] == 0 && text[1] != 0;
}

bool json_text_is_string(const json_t *value)
{
    return json_is_string(value) && !is_foreign_number(value);
}

struct byte_span json_text_string(const json_t *value)
{
    struct byte_span text = {json_string_value(value), json_string_length(value)};
    size_t led = text.bytes > 0 && text.data[0] == 0;
    return (struct byte_span){text.data + led, text.bytes - led};
}

const char *json_text_type(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return is_foreign_number(value) ? "number" : "string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    default:
        return "null";
    }
}

/* ---- writing ---- */

enum status json_text_write_string(struct byte_buffer *out, struct byte_span text, struct error *err)
{
    TRY(byte_buffer_append_text(out, "\"", err));
    size_t copied = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
        const char *named = byte ? strchr(plain, byte) : NULL;
        char escape[8] = {'\\', 0};
        if (named)
            escape[1] = letters[named - plain];
        else
            snprintf(escape, sizeof escape, "\\u%04x", byte);
        TRY(byte_buffer_append(out, text.data + copied, i - copied, err));
        TRY(byte_buffer_append_text(out, escape, err));
        copied = i + 1;
    }
    if (copied < text.bytes) /* an empty text may be NULL */
        TRY(byte_buffer_append(out, text.data + copied, text.bytes - copied, err));
    return byte_buffer_append_text(out, "\"", err);
}

/* The fewest digits that read back as `value`, as d.ddde+xx; gives the number of digits after the point.
 * Below a power of two doubles lie closer than above it, so there the next decimal upward may read back where
 * the nearest does not. */
static int write_shortest(char *digits, size_t bytes, double value)
{
    int precision = 0;
    for (;; precision++) {
        snprintf(digits, bytes, "%.*e", precision, value);
        if (precision == 16 || strtod(digits, NULL) == value)
            break;
        char *last = strchr(digits, 'e') - 1;
        if (*last != '9' && (++*last, strtod(digits, NULL) == value))
            break;
    }
    return precision;
}

/* Python's repr of a float: the shortest digits, in plain form from 1e-4 to 1e16 (no number there needs the
 * step upward). */
static enum status write_real(struct byte_buffer *out, double value, struct error *err)
{
    char digits[32], text[64];
    int precision = write_shortest(digits, sizeof digits, value);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16)
        return byte_buffer_append_text(out, digits, err);
    snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, value);
    return byte_buffer_append_text(out, text, err);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status write_object(struct byte_buffer *out, const json_t *value, enum json_text_style style,
                                struct error *err)
{
    bool compact = style == JSON_TEXT_SORTED_COMPACT;
    size_t count = 0;
    const char **keys;
    TRY(memory_take(&keys, json_object_size(value), sizeof *keys, "a JSON object", err));
    json_t *object = (json_t *)value; /* jansson's iterators take no const */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        keys[count++] = json_object_iter_key(at);
    if (compact)
        qsort(keys, count, sizeof *keys, compare_keys);
    enum status status = byte_buffer_append_text(out, "{", err);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i)
            status = byte_buffer_append_text(out, compact ? "," : ", ", err);
        if (status == STATUS_OK)
            status = json_text_write_string(out, (struct byte_span){keys[i], strlen(keys[i])}, err);
        if (status == STATUS_OK)
            status = byte_buffer_append_text(out, compact ? ":" : ": ", err);
        if (status == STATUS_OK)
            status = json_text_write(out, json_object_get(value, keys[i]), style, err);
    }
    free(keys);
    return status == STATUS_OK ? byte_buffer_append_text(out, "}", err) : status;
}

static enum status write_array(struct byte_buffer *out, const json_t *value, enum json_text_style style,
                               struct error *err)
{
    TRY(byte_buffer_append_text(out, "[", err));
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i)
            TRY(byte_buffer_append_text(out, style == JSON_TEXT_SORTED_COMPACT ? "," : ", ", err));
        TRY(json_text_write(out, json_array_get(value, i), style, err));
    }
    return byte_buffer_append_text(out, "]", err);
}

enum status json_text_write(struct byte_buffer *out, const json_t *value, enum json_text_style style, struct error *err)
{
    char integer[32];
    struct byte_span text;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return write_object(out, value, style, err);
    case JSON_ARRAY:
        return write_array(out, value, style, err);
    case JSON_STRING:
        text = json_text_string(value);
        if (is_foreign_number(value))
            return byte_buffer_append(out, text.data, text.bytes, err);
        return json_text_write_string(out, text, err);
    case JSON_INTEGER:
        snprintf(integer, sizeof integer, "%lld", (long long)json_integer_value(value));
        return byte_buffer_append_text(out, integer, err);
    case JSON_REAL:
        return write_real(out, json_real_value(value), err);
    case JSON_TRUE:
        return byte_buffer_append_text(out, "true", err);
    case JSON_FALSE:
        return byte_buffer_append_text(out, "false", err);
    default:
        return byte_buffer_append_text(out, "null", err);
    }
}
