#include "model/config_parts.h"

#include <stdio.h>

enum { PATH_BYTES = 256, NAME_SHOWN = 40 };

static const char *const packed_format[] = {"mxfp4-pack-quantized"};

typedef enum status (*section_check)(struct config_reader *section, struct error *err);

/* Checks the object under `key`, if there is one. */
static enum status check_section(struct config_reader *parent, const char *key, section_check check, struct error *err)
{
    struct config_reader section;
    char path[PATH_BYTES];
    json_t *object;
    TRY(config_reader_object(parent, key, &object, err));
    if (!object)
        return STATUS_OK;
    snprintf(path, sizeof path, "%s%.*s.", parent->path, NAME_SHOWN, key);
    TRY(config_reader_init(&section, object, path, err));
    enum status status = check(&section, err);
    config_reader_fini(&section);
    return status;
}

static enum status check_weights(struct config_reader *weights, struct error *err)
{
    static const char *const types[] = {"float"};
    uint32_t type, bits, group_size;
    TRY(config_reader_word(weights, "type", types, 1, &type, err));
    TRY(config_reader_count(weights, "num_bits", 4, 4, &bits, err));
    return config_reader_count(weights, "group_size", 32, 32, &group_size, err);
}

static enum status check_group(struct config_reader *group, struct error *err)
{
    uint32_t format;
    TRY(config_reader_word(group, "format", packed_format, 1, &format, err));
    return check_section(group, "weights", check_weights, err);
}

static enum status check_groups(struct config_reader *groups, struct error *err)
{
    const char *name;
    json_t *group;
    json_object_foreach (groups->object, name, group) {
        TRY(check_section(groups, name, check_group, err));
    }
    return STATUS_OK;
}

static enum status check_method(struct config_reader *quantization, struct error *err)
{
    static const char *const methods[] = {"compressed-tensors"};
    uint32_t method, format;
    TRY(config_reader_require(quantization, "quant_method", err));
    TRY(config_reader_word(quantization, "quant_method", methods, 1, &method, err));
    TRY(config_reader_word(quantization, "format", packed_format, 1, &format, err));
    return check_section(quantization, "config_groups", check_groups, err);
}

enum status config_check_quantization(struct config_reader *parent, struct error *err)
{
    return check_section(parent, "quantization_config", check_method, err);
}
