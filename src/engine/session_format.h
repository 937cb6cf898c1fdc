/* The head of a session as bytes: in memory (snapshot) and in a file. Its tests write such heads themselves. */
#ifndef DAY0_ENGINE_SESSION_FORMAT_H
#define DAY0_ENGINE_SESSION_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum { SESSION_VERSION = 1, SESSION_NOTE_BYTES_MAX = 1 << 28 };

#define SESSION_MAGIC "day0sess"

struct session_header {
    char magic[8];
    uint32_t version, n_tokens, length, has_logits;
    uint64_t identity[2]; /* of the checkpoint */
    char numerics[128];   /* day0_engine_numerics */
    uint64_t note_bytes;
    uint64_t payload_bytes; /* before compression */
    uint64_t stored_bytes;  /* that follow the header */
    uint64_t checksum[2];
};

/* Fills `checksum` from the rest of the header and the `stored_bytes` that follow it. */
void session_format_seal(struct session_header *header, const void *stored);

/* The checksum of a header whose content has the given XXH3-128 hash. */
void session_format_checksum(const struct session_header *header, uint64_t content_low, uint64_t content_high,
                             uint64_t out[2]);

#endif
