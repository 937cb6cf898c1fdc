#include "text/utf8.h"

/* What may follow a first byte: how many bytes, and the range of the second; the others are 80..BF. */
struct lead {
    unsigned bytes;
    unsigned char low, high;
};

static struct lead lead_of(unsigned char first)
{
    if (first >= 0xc2 && first <= 0xdf)
        return (struct lead){2, 0x80, 0xbf};
    if (first >= 0xe0 && first <= 0xef)
        return (struct lead){3, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf};
    if (first >= 0xf0 && first <= 0xf4)
        return (struct lead){4, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0, 0, 0};
}

struct utf8_step utf8_step(const char *text, size_t bytes)
{
    const unsigned char *data = (const unsigned char *)text;
    if (data[0] < 0x80)
        return (struct utf8_step){UTF8_VALID, 1, data[0]};
    struct lead lead = lead_of(data[0]);
    if (lead.bytes == 0)
        return (struct utf8_step){UTF8_INVALID, 1, 0};
    uint32_t code = data[0] & (0x7fu >> lead.bytes);
    for (unsigned i = 1; i < lead.bytes; i++) {
        if (i == bytes)
            return (struct utf8_step){UTF8_INCOMPLETE, i, 0};
        unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xbf;
        if (data[i] < low || data[i] > high)
            return (struct utf8_step){UTF8_INVALID, i, 0};
        code = code << 6 | (data[i] & 0x3f);
    }
    return (struct utf8_step){UTF8_VALID, lead.bytes, code};
}

bool utf8_is_valid(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        struct utf8_step step = utf8_step(text + at, bytes - at);
        if (step.kind != UTF8_VALID)
            return false;
        at += step.bytes;
    }
    return true;
}

bool utf8_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}
