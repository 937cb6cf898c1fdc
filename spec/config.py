"""The published config.json of the family, read into the fields that the models use. Layers are counted from 0 here, from 1 in the file."""
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KdaConfig:
    heads: int
    dim: int
    kernel: int
    lower_bound: float       # None: the softplus gate of Kimi Linear
    full_rank_gate: bool


@dataclass(frozen=True)
class MlaConfig:
    heads: int
    q_rank: int              # None: queries are projected in one step
    kv_rank: int
    nope: int                # per-head key size
    shared: int              # size of the key part that all heads share ("rope" in the tensor names; never rotated here)
    v: int
    gated: bool


@dataclass(frozen=True)
class IndexerConfig:
    heads: int
    dim: int
    topk: int


@dataclass(frozen=True)
class MoeConfig:
    experts: int
    active: int
    shared: int
    inner: int
    latent: int              # None: experts work at full width
    latent_norm: bool
    router: str              # sigmoid | softmax
    renormalize: bool
    scale: float
    groups: int
    active_groups: int
    first_layer: int


@dataclass(frozen=True)
class Config:
    vocab: int
    hidden: int
    layers: int
    dense_inner: int
    eps: float
    tied: bool
    activation: str          # silu | situ
    situ_beta: float
    situ_linear_beta: float
    block: int               # layers in a block of Attention Residuals; None: plain residual connections
    kda_layers: frozenset    # 0-based
    kda: KdaConfig
    mla: MlaConfig
    indexer: IndexerConfig   # None before K3.1
    moe: MoeConfig           # None: dense everywhere

    @staticmethod
    def load(directory):
        return Config.parse(json.loads((Path(directory) / "config.json").read_text()))

    @staticmethod
    def parse(raw):
        """From the published config.json, nested (text_config) or flat."""
        raw = raw.get("text_config", raw)
        _refuse_unknown(raw)
        linear = raw["linear_attn_config"]
        return Config(
            vocab=raw["vocab_size"], hidden=raw["hidden_size"], layers=raw["num_hidden_layers"],
            dense_inner=raw["intermediate_size"], eps=raw.get("rms_norm_eps", 1e-5), tied=raw.get("tie_word_embeddings", False),
            activation=raw.get("hidden_act", "silu"), situ_beta=raw.get("activation_situ_beta") or 1.0,
            situ_linear_beta=raw.get("activation_situ_linear_beta"), block=raw.get("attn_res_block_size"),
            kda_layers=frozenset(i - 1 for i in linear["kda_layers"]),
            kda=KdaConfig(linear["num_heads"], linear["head_dim"], linear["short_conv_kernel_size"],
                          linear.get("gate_lower_bound"), linear.get("use_full_rank_gate", False)),
            mla=MlaConfig(raw["num_attention_heads"], raw.get("q_lora_rank"), raw["kv_lora_rank"], raw["qk_nope_head_dim"],
                          raw["qk_rope_head_dim"], raw["v_head_dim"], raw.get("mla_use_output_gate", False)),
            indexer=_indexer(raw), moe=_moe(raw))


def _refuse_unknown(raw):
    """ValueError where the config asks for something that this family does not have."""
    wanted = {"hidden_act": ("silu", "situ"), "moe_router_activation_func": ("sigmoid", "softmax"), "mla_use_nope": (True,),
              "moe_layer_freq": (1,), "topk_method": ("noaux_tc",)}
    for key, known in wanted.items():
        if raw.get(key, known[0]) not in known:
            raise ValueError(f"config: {key} is {raw[key]!r}, want one of {known}")


def _indexer(raw):
    """dsa_config is spelled in several ways; its top-k may also stand beside it."""
    dsa = raw.get("dsa_config")
    if not dsa:
        return None
    full = raw["linear_attn_config"]["full_attn_layers"]
    layers = _first([dsa, {"full_attn_layers": full}], "dsa_layers", "index_layers", "layers", "full_attn_layers")
    if sorted(layers) != sorted(full):
        raise ValueError(f"config: indexers in layers {layers}, want all full-attention layers {full}")
    return IndexerConfig(_first([dsa], "index_n_heads", "n_heads", "num_heads"), _first([dsa], "index_head_dim", "head_dim"),
                         _first([dsa, raw], "index_topk", "topk", "top_k", "sparse_topk"))


def _first(tables, *names):
    """The first of the names that one of the tables has."""
    for table in tables:
        for name in names:
            if name in table:
                return table[name]
    raise ValueError(f"config: want one of {', '.join(names)}")


def _moe(raw):
    if not raw.get("num_experts"):
        return None
    return MoeConfig(
        experts=raw["num_experts"], active=raw["num_experts_per_token"], shared=raw.get("num_shared_experts") or 0,
        inner=raw["moe_intermediate_size"], latent=raw.get("routed_expert_hidden_size"), latent_norm=raw.get("latent_moe_use_norm", True),
        router=raw.get("moe_router_activation_func", "sigmoid"), renormalize=raw.get("moe_renormalize", True),
        scale=raw.get("routed_scaling_factor", 1.0), groups=raw.get("num_expert_group") or 1,
        active_groups=raw.get("topk_group") or 1, first_layer=raw.get("first_k_dense_replace", 1))
