/* config.json: any text is refused with a sentence, or gives a config whose sizes the engine can rely on. */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct config config;
    const struct config_options options = {.accept_unknown = true};
    struct error err = {0};
    if (config_parse(&config, (const char *)bytes, size, &options, &err) != STATUS_OK) {
        CHECK(err.text[0] != 0);
        return 0;
    }
    CHECK(config.n_layers >= 1 && config.n_layers <= CONFIG_LAYERS_MAX && config.hidden_size >= 1);
    CHECK(config.kda_head_dim >= 1 && config.kda_head_dim <= CONFIG_HEAD_DIM_MAX);
    CHECK(config.conv_taps >= 1 && config.conv_taps <= CONFIG_CONV_TAPS_MAX);
    CHECK(!config.bounded_decay || config.decay_bound < 0);
    CHECK(!config.n_experts || (config.n_experts_per_token >= 1 && config.n_experts_per_token <= config.n_experts &&
                                config.moe_intermediate_size >= 1 && config.n_experts % config.n_expert_groups == 0));
    CHECK(config.n_stop_tokens <= CONFIG_STOP_TOKENS_MAX && config.n_unknown_keys <= CONFIG_KEYS_MAX);
    for (uint32_t i = 0; i < CONFIG_LAYERS_MAX; i++)
        CHECK(!config.is_index_layer[i] || (!config.is_kda[i] && i < config.n_layers && config.index_topk));
    for (uint32_t i = 0; i < config.n_stop_tokens; i++)
        CHECK(config.stop_tokens[i] >= 0 && (uint32_t)config.stop_tokens[i] < config.vocab_size);
    return 0;
}
