/* The header of a safetensors file: any bytes are refused with a sentence, or give entries that lie inside
 * them. */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct safetensors parsed;
    struct error err = {0};
    if (safetensors_parse(&parsed, "input", bytes, size, &err) != STATUS_OK) {
        CHECK(err.text[0] != 0 && !parsed.entries);
        return 0;
    }
    const char *end = (const char *)bytes + size, *last_end = NULL;
    for (size_t i = 0; i < parsed.count; i++) {
        const struct safetensors_entry *entry = &parsed.entries[i];
        CHECK(entry->data >= (const char *)bytes + 8 && entry->data <= end &&
              entry->bytes <= (size_t)(end - entry->data));
        CHECK(entry->rank <= SAFETENSORS_RANK_MAX && entry->name.bytes > 0 &&
              entry->name.bytes <= SAFETENSORS_NAME_BYTES_MAX);
        last_end = entry->bytes ? entry->data + entry->bytes : last_end;
    }
    CHECK(!last_end || last_end <= end);
    safetensors_fini(&parsed);
    return 0;
}
