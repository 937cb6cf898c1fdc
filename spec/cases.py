"""Small random models that together reach every branch of the family. CASES {name: text config}; `build` makes the model of a seed.

The weights are random but far from bland: gates, routers and depth mixes are spread, so a wrong axis, sign or layer boundary moves the logits.
"""
import math
import zlib

import numpy as np
import torch

import checkpoint
import k31
from config import Config

K31 = {
    "model_type": "kimi_linear", "vocab_size": 256, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 160, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
    "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 2,
    "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 2, "moe_intermediate_size": 64, "moe_layer_freq": 1,
    "routed_expert_hidden_size": 64, "latent_moe_use_norm": True, "first_k_dense_replace": 1,
    "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 1.0,
    "num_expert_group": 1, "topk_group": 1, "bos_token_id": 0, "eos_token_id": 1,
    "quantization_config": checkpoint.QUANTIZATION,
}
KIMI_LINEAR = {
    "hidden_act": "silu", "activation_situ_beta": None, "activation_situ_linear_beta": None, "q_lora_rank": None,
    "mla_use_output_gate": False, "attn_res_block_size": None, "routed_expert_hidden_size": None, "num_shared_experts": 1,
    "routed_scaling_factor": 2.446, "quantization_config": None,
}
HEAD128 = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
           "qk_rope_head_dim": 64, "v_head_dim": 128}
GROUPS = {"num_expert_group": 4, "topk_group": 2}


def text_config(layers, full, changes=None, kda=None, index=None):
    """full: 1-based full-attention layers. index (heads, dim, topk): a lightning indexer in each of them."""
    text = dict(K31, num_hidden_layers=layers)
    text.update(changes or {})
    text["linear_attn_config"] = {
        "kda_layers": [i for i in range(1, layers + 1) if i not in full], "full_attn_layers": full, "num_heads": text["num_attention_heads"],
        "head_dim": 32, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0, "use_full_rank_gate": True, **(kda or {})}
    if index:
        text["dsa_config"] = dict(zip(("index_n_heads", "index_head_dim", "index_topk"), index), dsa_layers=full)
    return {key: value for key, value in text.items() if value is not None}


SOFTPLUS = {"gate_lower_bound": None, "use_full_rank_gate": False}
CASES = {
    "k31": text_config(6, [3, 6], index=(4, 32, 16)),
    "k31-head128": text_config(4, [2, 4], HEAD128, kda={"head_dim": 128}, index=(8, 128, 32)),
    "k31-last-block-open": text_config(7, [4, 7], {"attn_res_block_size": 3}, index=(4, 32, 8)),
    "k3": text_config(5, [3, 5]),
    "k3-block12": text_config(13, [4, 8, 12, 13], {"attn_res_block_size": 12}),
    "linear": text_config(4, [4], KIMI_LINEAR, kda=SOFTPLUS),
    "k31-small": text_config(4, [2, 4], {"attn_res_block_size": 3}, index=(4, 32, 16)),
    "k31-saturated": text_config(4, [3, 4], index=(4, 32, 8)),
    "k31-negative-bias": text_config(3, [2], {"num_experts": 16, "num_experts_per_token": 3, **GROUPS}, index=(4, 32, 16)),
    "linear-grouped-router": text_config(3, [3], {**KIMI_LINEAR, **GROUPS}, kda=SOFTPLUS),
}


def config_json(name):
    """The whole config.json of a case: K3 and K3.1 nest the text config, Kimi Linear is flat."""
    text = CASES[name]
    if "attn_res_block_size" not in text:
        return {"architectures": ["KimiLinearForCausalLM"], **text}
    architecture = "KimiK31ForConditionalGeneration" if "dsa_config" in text else "KimiK3ForConditionalGeneration"
    return {"architectures": [architecture], "model_type": "kimi_k3", "text_config": text}


def initial(name, noise):
    """The value of one parameter from unit normal noise of its shape."""
    fan_in = math.sqrt(noise.shape[-1])
    rules = (
        (("norm.weight",), lambda: 1 + 0.2 * noise),
        (("k_norm.bias",), lambda: 0.1 * noise),
        (("A_log",), lambda: 0.5 * noise),
        (("dt_bias",), lambda: noise - 1.5),
        (("e_score_correction_bias",), lambda: 0.05 * noise),
        (("_res.proj.weight",), lambda: 2.0 * noise / fan_in),
        (("conv1d.weight",), lambda: 0.5 * noise),
        (("embed_tokens.weight",), lambda: noise),
        ((".gate.weight",), lambda: 1.5 * noise / fan_in),
        (("",), lambda: 1.2 * noise / fan_in),
    )
    return next(rule for endings, rule in rules if name.endswith(endings))()


SHRUNK = ("q_a_proj.weight", "kv_a_proj_with_mqa.weight", "indexer.wk.weight", "q_proj.weight", "k_proj.weight",
          "routed_expert_down_proj.weight", "embed_tokens.weight")


def special(case, name, value):
    """What ordinary activations hide: epsilons that matter, decays at both bounds, routers whose scores are all negative."""
    if case == "k31-small" and name.endswith(SHRUNK):
        value = value * 2e-3
    if case == "k31-saturated" and name.endswith("dt_bias"):
        value[0::3], value[1::3] = 60.0, -60.0
    if case == "k31-negative-bias" and name.endswith("e_score_correction_bias"):
        value = value - 1.5
    return value


def build(case, seed):
    """The float32 model of a case; a parameter depends on the seed, its name and its shape alone."""
    model = k31.Model(Config.parse(config_json(case)))
    for name, parameter in model.named_parameters():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        noise = generator.standard_normal(tuple(parameter.shape), dtype=np.float32)
        parameter.data = torch.from_numpy(np.asarray(special(case, name, initial(name, noise)), np.float32))
    return model
