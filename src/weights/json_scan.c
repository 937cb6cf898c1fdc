#include "weights/json_scan.h"

#include <string.h>

struct json_scan json_scan_begin(const char *text, size_t bytes)
{
    return (struct json_scan){text, text, text + bytes, NULL};
}

bool json_scan_fault(struct json_scan *scan, const char *wanted)
{
    if (!scan->fault)
        scan->fault = wanted;
    return false;
}

enum status json_scan_status(const struct json_scan *scan, const char *file, const char *part, struct error *err)
{
    if (!scan->fault)
        return STATUS_OK;
    size_t where = (size_t)(scan->at - scan->start);
    if (scan->at == scan->end)
        return error_set(err, STATUS_FORMAT, "%s: not valid at byte %zu of the %s: expected %s, found its end", file,
                         where, part, scan->fault);
    unsigned char found = (unsigned char)*scan->at;
    if (found > 32 && found < 127)
        return error_set(err, STATUS_FORMAT, "%s: not valid at byte %zu of the %s: expected %s, found '%c'", file,
                         where, part, scan->fault, found);
    return error_set(err, STATUS_FORMAT, "%s: not valid at byte %zu of the %s: expected %s, found byte 0x%02x", file,
                     where, part, scan->fault, found);
}

static void skip_blanks(struct json_scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
}

static bool take(struct json_scan *scan, char wanted)
{
    if (scan->fault)
        return false;
    skip_blanks(scan);
    if (scan->at == scan->end || *scan->at != wanted)
        return false;
    scan->at++;
    return true;
}

bool json_scan_open(struct json_scan *scan, char bracket)
{
    return take(scan, bracket) || json_scan_fault(scan, bracket == '{' ? "an object" : "a list");
}

bool json_scan_more(struct json_scan *scan, char closing, bool *first)
{
    if (take(scan, closing) || scan->fault)
        return false;
    if (!*first && !take(scan, ','))
        return json_scan_fault(scan, "a comma or the end of the object or list");
    *first = false;
    return true;
}

/* A string with any valid escapes, unresolved. */
static bool scan_string(struct json_scan *scan, struct text_span *value, bool *escaped)
{
    if (!take(scan, '"'))
        return json_scan_fault(scan, "a string");
    const char *at = scan->at;
    *escaped = false;
    while (at < scan->end && *at != '"') {
        if ((unsigned char)*at < 32) {
            scan->at = at;
            return json_scan_fault(scan, "a printable character");
        }
        if (*at == '\\') {
            *escaped = true;
            at++;
        }
        if (at < scan->end)
            at++;
    }
    *value = (struct text_span){scan->at, (size_t)(at - scan->at)};
    scan->at = at;
    if (at == scan->end)
        return json_scan_fault(scan, "the end of a string");
    scan->at++;
    return true;
}

bool json_scan_string(struct json_scan *scan, struct text_span *value)
{
    bool escaped;
    const char *before = scan->at;
    if (!scan_string(scan, value, &escaped))
        return false;
    if (escaped) {
        scan->at = before;
        return json_scan_fault(scan, "a name without escapes");
    }
    return true;
}

bool json_scan_key(struct json_scan *scan, struct text_span *name)
{
    return json_scan_string(scan, name) && (take(scan, ':') || json_scan_fault(scan, "a colon"));
}

bool json_scan_unsigned(struct json_scan *scan, uint64_t *value)
{
    if (scan->fault)
        return false;
    skip_blanks(scan);
    const char *first = scan->at;
    *value = 0;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9') {
        uint64_t digit = (uint64_t)(*scan->at - '0');
        if (*value > (UINT64_MAX - digit) / 10)
            return json_scan_fault(scan, "a number below 2^64");
        *value = *value * 10 + digit;
        scan->at++;
    }
    if (scan->at == first)
        return json_scan_fault(scan, "a whole number");
    if (*first == '0' && scan->at - first > 1) {
        scan->at = first;
        return json_scan_fault(scan, "a number without leading zeros");
    }
    return true;
}

/* true, false, null or any number; its exact grammar is not this scanner's
 * business, as nothing here reads it. */
static bool skip_plain(struct json_scan *scan)
{
    const char *first = scan->at;
    while (scan->at<scan->end && * scan->at> ' ' && !strchr(",]}\"[{:", *scan->at))
        scan->at++;
    return scan->at > first || json_scan_fault(scan, "a value");
}

static bool skip_value(struct json_scan *scan, uint32_t depth)
{
    bool first = true, escaped;
    struct text_span text;
    if (scan->fault)
        return false;
    if (depth > JSON_SCAN_DEPTH_MAX)
        return json_scan_fault(scan, "less nesting");
    skip_blanks(scan);
    char next = scan->at < scan->end ? *scan->at : 0;
    if (next == '"')
        return scan_string(scan, &text, &escaped);
    if (next != '{' && next != '[')
        return skip_plain(scan);
    scan->at++;
    while (json_scan_more(scan, next == '{' ? '}' : ']', &first)) {
        if (next == '{' &&
            !(scan_string(scan, &text, &escaped) && (take(scan, ':') || json_scan_fault(scan, "a colon"))))
            return false;
        if (!skip_value(scan, depth + 1))
            return false;
    }
    return !scan->fault;
}

bool json_scan_skip(struct json_scan *scan)
{
    return skip_value(scan, 0);
}

bool json_scan_finish(struct json_scan *scan)
{
    if (scan->fault)
        return false;
    skip_blanks(scan);
    return scan->at == scan->end || json_scan_fault(scan, "nothing more");
}

bool text_span_equals(struct text_span span, const char *text)
{
    return strlen(text) == span.bytes && memcmp(span.at, text, span.bytes) == 0;
}
