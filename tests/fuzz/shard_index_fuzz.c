/* model.safetensors.index.json: any text is refused with a sentence, or names files beside it only. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "weights/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct shard_index index;
    struct error err = {0};
    if (shard_index_parse(&index, (const char *)bytes, size, &err) != STATUS_OK) {
        CHECK(err.text[0] != 0 && !index.entries && !index.files);
        return 0;
    }
    CHECK(index.count > 0 && index.n_files > 0);
    for (size_t i = 0; i < index.count; i++)
        CHECK(index.entries[i].file < index.n_files);
    for (uint32_t i = 0; i < index.n_files; i++)
        CHECK(index.files[i][0] && index.files[i][0] != '.' && !strchr(index.files[i], '/'));
    shard_index_fini(&index);
    return 0;
}
