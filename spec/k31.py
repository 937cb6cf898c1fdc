"""The meaning of Kimi Linear, Kimi K3 and Kimi K3.1 (text), written to be read.

One set of classes serves the family; every difference between its members is a field of Config (config.py). Nothing here is fast. Axes: B sequences
of equal length, T tokens, D hidden size, H heads, K and V sizes of a key and a value, S positions looked back at, E experts, A experts
taken per token. Attribute names are the checkpoint's tensor names (checkpoint.py holds the few exceptions). A layer is

    x <- depth mix; RMSNorm; KDA or gated MLA (K3.1: over positions an indexer selects); added to the stream
    x <- depth mix; RMSNorm; dense FFN or mixture of experts;                            added to the stream

where the depth mix is the open sum itself in a model without Attention Residuals.
"""
import math
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F

import mx

KDA_CHUNK = 16           # with a decay of at least exp(-5) a token, exp(+-80) stays inside float32
QUERY_ROWS = 512         # attention scores exist for this many queries at a time
LATENT_EPS = 1e-6        # the published code builds the two latent norms of MLA with its default, not with rms_norm_eps
UNIT_EPS = 1e-6          # in the normalization of KDA's queries and keys


# ------------------------------------------------------------------------------------------------------ one run's choices

@dataclass(frozen=True)
class Numerics:
    """How a run rounds what a sequence keeps between tokens; f32 means: not at all."""
    cache: str = "f32"           # MLA's normalized latent and shared key: f32 | bf16
    li: str = "f32"              # the indexer's queries and keys: f32 | bf16 | mxfp8
    li_scale: str = "floor"      # the scale rule of mxfp8: floor | ceil


@dataclass
class Selection:
    """What an indexer did for some query rows of one layer. `first` is the first row's position; R rows."""
    layer: int                   # 0-based
    first: int
    dots: torch.Tensor           # [B,R,H,S] index query . index key, before ReLU
    weights: torch.Tensor        # [B,R,H]
    scores: torch.Tensor         # [B,R,S]; positions after the query are not masked
    keep: torch.Tensor           # bool [B,R,S]
    attention: torch.Tensor      # [B,H,R,S] the attention logits it selects for


@dataclass
class Routing:
    """What a router did for all tokens of one layer; N = B * T."""
    layer: int
    choice: torch.Tensor         # [N,E] scores with the correction bias
    groups: torch.Tensor         # [N,G] group scores, None without groups
    allowed: torch.Tensor        # bool [N,E] experts of the chosen groups
    ids: torch.Tensor            # [N,A]


def unchanged(x):
    return x


@dataclass
class Run:
    """Options of one forward pass, and what it leaves behind for whoever looks inside."""
    numerics: Numerics = Numerics()
    recurrent: bool = False                # KDA token by token (the definition) instead of in chunks
    expert_weight: Callable = unchanged    # applied to expert matrices: training sees their rounding through it
    watch: bool = False                    # fill the two lists below
    selections: list = field(default_factory=list)
    routings: list = field(default_factory=list)


def stored(x, form, rule="floor"):
    """x as it reads back after being stored in `form`; bf16 and mxfp8 start from float32."""
    if form == "f32":
        return x
    if form == "bf16":
        return x.float().bfloat16().to(x.dtype)
    if form == "mxfp8":
        codes, scales = mx.quantize_mxfp8(x.detach().float().numpy(), rule)
        return torch.from_numpy(mx.dequantize_mxfp8(codes, scales)).to(x.dtype)
    raise ValueError(f"storage format {form!r}: want f32, bf16 or mxfp8")


# --------------------------------------------------------------------------------------------------------- small parts

def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


def unit_rms(x, eps):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return unit_rms(x, self.eps) * self.weight


def gated(c, gate, up):
    """SwiGLU: silu(gate) up. SiTU: both factors saturate, b tanh(gate/b) sigmoid(gate) * c tanh(up/c)."""
    if c.activation == "silu":
        return F.silu(gate) * up
    if c.situ_linear_beta:
        up = c.situ_linear_beta * torch.tanh(up / c.situ_linear_beta)
    return c.situ_beta * torch.tanh(gate / c.situ_beta) * torch.sigmoid(gate) * up


def best(scores, count):
    """Indices [..., count] of the largest scores along the last axis; equal scores: the lower index first."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :count]


def mark(like, indices):
    """bool, shaped as `like`: true at `indices` of the last axis."""
    return torch.zeros_like(like, dtype=torch.bool).scatter(-1, indices, True)


# ---------------------------------------------------------------------------------------------- Kimi Delta Attention (KDA)

def kda_recurrent(q, k, v, g, beta, state):
    """The definition. q, k, g [B,T,H,K]; v [B,T,H,V]; beta [B,T,H]; state S [B,H,K,V] -> (out [B,T,H,V], state).

    q and k have length 1 (q is also scaled), g <= 0 is the natural log of the decay of each key channel. For every token:

        S <- diag(exp g) S;   u = beta (v - S^T k);   S <- S + k u^T;   out = S^T q
    """
    out = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None] * state
        u = beta[:, t, :, None] * (v[:, t] - (k[:, t, :, None, :] @ state)[..., 0, :])
        state = state + k[:, t, :, :, None] * u[..., None, :]
        out.append((q[:, t, :, None, :] @ state)[..., 0, :])
    return torch.stack(out, 1), state


def kda_chunked(q, k, v, g, beta, state):
    """The same function, a chunk of tokens at a time.

    Let G be g summed from the chunk's start to a token, included. The updates u of a chunk solve a unit lower triangular system:
        u_i + beta_i sum_{j<i} (k_i e^{G_i} . k_j e^{-G_j}) u_j = beta_i (v_i - S^T (k_i e^{G_i}))
    with S the state before the chunk; outputs and the next state then follow by matrix products.
    """
    out = []
    for piece in zip(*(x.transpose(1, 2).split(KDA_CHUNK, 2) for x in (q, k, v, g, beta[..., None]))):
        q_c, k_c, v_c, g_c, beta_c = piece                              # [B,H,C,*]
        total = g_c.cumsum(2)
        q_in, k_in, k_out = q_c * total.exp(), k_c * total.exp(), k_c * (-total).exp()
        cross = (beta_c * (k_in @ k_out.transpose(-1, -2))).tril(-1)
        system = cross + torch.eye(cross.shape[-1], dtype=cross.dtype)
        u = torch.linalg.solve_triangular(system, beta_c * (v_c - k_in @ state), upper=False, unitriangular=True)
        out.append(q_in @ state + (q_in @ k_out.transpose(-1, -2)).tril() @ u)
        end = total[:, :, -1:]
        state = end.exp().transpose(-1, -2) * state + (k_c * (end - total).exp()).transpose(-1, -2) @ u
    return torch.cat(out, 2).transpose(1, 2), state


class KimiDeltaAttention(nn.Module):
    """Linear attention with a delta rule and a decay for every key channel."""

    def __init__(self, c):
        super().__init__()
        self.c, kda = c.kda, c.kda
        inner = kda.heads * kda.dim
        self.q_proj, self.k_proj, self.v_proj = (linear(c.hidden, inner) for _ in range(3))
        conv = lambda: nn.Conv1d(inner, inner, kda.kernel, groups=inner, bias=False)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = conv(), conv(), conv()
        self.f_a_proj, self.f_b_proj = linear(c.hidden, kda.dim), linear(kda.dim, inner)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(kda.heads)), nn.Parameter(torch.zeros(inner))
        self.b_proj = linear(c.hidden, kda.heads)
        if kda.full_rank_gate:
            self.g_proj = linear(c.hidden, inner)
        else:
            self.g_a_proj, self.g_b_proj = linear(c.hidden, kda.dim), linear(kda.dim, inner)
        self.o_norm, self.o_proj = RMSNorm(kda.dim, c.eps), linear(inner, c.hidden)

    def heads(self, x):
        """[B,T,H*dim] -> [B,T,H,dim]."""
        return x.unflatten(-1, (self.c.heads, self.c.dim))

    def convolved(self, x, proj, conv):
        """Projection, then a causal convolution of each channel over its last `kernel` inputs (zeros before the first), then SiLU."""
        channels_first = F.pad(proj(x).transpose(1, 2), (self.c.kernel - 1, 0))
        return self.heads(F.silu(conv(channels_first)).transpose(1, 2))

    def log_decay(self, x):
        """[B,T,D] -> g [B,T,H,K] <= 0: a bounded sigmoid (K3) or a softplus (Kimi Linear)."""
        z = self.heads(self.f_b_proj(self.f_a_proj(x)) + self.dt_bias)
        rate = self.A_log.exp()[:, None]
        if self.c.lower_bound is None:
            return -rate * F.softplus(z)
        return self.c.lower_bound * torch.sigmoid(rate * z)

    def forward(self, x, run):
        """[B,T,D] -> [B,T,D]."""
        unit = lambda y: y / torch.sqrt(y.square().sum(-1, keepdim=True) + UNIT_EPS)
        q = unit(self.convolved(x, self.q_proj, self.q_conv1d)) * self.c.dim ** -0.5
        k = unit(self.convolved(x, self.k_proj, self.k_conv1d))
        v = self.convolved(x, self.v_proj, self.v_conv1d)
        g, beta = self.log_decay(x), torch.sigmoid(self.b_proj(x))
        chunks_are_safe = self.c.lower_bound is not None and self.c.lower_bound >= -5
        rule = kda_chunked if chunks_are_safe and not run.recurrent else kda_recurrent
        out, _ = rule(q, k, v, g, beta, x.new_zeros(x.shape[0], self.c.heads, self.c.dim, self.c.dim))
        gate = self.g_proj(x) if self.c.full_rank_gate else self.g_b_proj(self.g_a_proj(x))
        return self.o_proj((self.o_norm(out) * torch.sigmoid(self.heads(gate))).flatten(-2))


# --------------------------------------------------------------------------------------- gated MLA and its lightning indexer

class LightningIndexer(nn.Module):
    """Gives every query t a score for every position s; the topk best s <= t are attended to (all of them while t < topk).

        score(t,s) = sum_h w(t,h) relu(q(t,h) . k(s))          one key for all index heads, no rotary part

    Equal scores go to the lower position. A sum of -0.0 counts as 0.0.
    """

    def __init__(self, c):
        super().__init__()
        self.c = c.indexer
        self.wq_b, self.wk = linear(c.mla.q_rank, self.c.heads * self.c.dim), linear(c.hidden, self.c.dim)
        self.k_norm, self.weights_proj = nn.LayerNorm(self.c.dim, eps=c.eps), linear(c.hidden, self.c.heads)

    def prepare(self, x, q_latent, numerics):
        """x [B,T,D], q_latent [B,T,q_rank] -> queries [B,T,H,dim], weights [B,T,H], keys [B,T,dim], rounded as stored."""
        q = self.wq_b(q_latent).unflatten(-1, (self.c.heads, self.c.dim))
        k = self.k_norm(self.wk(x))
        w = self.weights_proj(x) / math.sqrt(self.c.heads * self.c.dim)
        return stored(q, numerics.li, numerics.li_scale), w, stored(k, numerics.li, numerics.li_scale)

    @staticmethod
    def score(q, w, k):
        """q [B,R,H,dim], w [B,R,H], k [B,S,dim] -> dots [B,R,H,S], scores [B,R,S]."""
        dots = torch.einsum("brhd,bsd->brhs", q, k)
        return dots, torch.einsum("brh,brhs->brs", w, dots.relu()) + 0.0

    def select(self, scores, causal):
        """scores [B,R,S], causal bool [R,S] -> bool [B,R,S]."""
        chosen = best(scores.masked_fill(~causal, -math.inf), self.c.topk)
        return mark(scores, chosen) & causal


class GatedMLA(nn.Module):
    """Softmax attention whose keys and values are expanded from a small latent; no rotation anywhere."""

    def __init__(self, c, layer):
        super().__init__()
        self.c, self.layer, mla = c.mla, layer, c.mla
        per_query = mla.heads * (mla.nope + mla.shared)
        if mla.q_rank:
            self.q_a_proj, self.q_b_proj = linear(c.hidden, mla.q_rank), linear(mla.q_rank, per_query)
            self.q_a_layernorm = RMSNorm(mla.q_rank, LATENT_EPS)
        else:
            self.q_proj = linear(c.hidden, per_query)
        self.kv_a_proj_with_mqa = linear(c.hidden, mla.kv_rank + mla.shared)
        self.kv_a_layernorm = RMSNorm(mla.kv_rank, LATENT_EPS)
        self.kv_b_proj = linear(mla.kv_rank, mla.heads * (mla.nope + mla.v))
        self.o_proj = linear(mla.heads * mla.v, c.hidden)
        if mla.gated:
            self.g_proj = linear(c.hidden, mla.heads * mla.v)
        if c.indexer:
            self.indexer = LightningIndexer(c)

    def queries(self, x):
        """[B,T,D] -> (q [B,T,H,nope+shared], the latent they came from [B,T,q_rank] or None)."""
        latent = self.q_a_layernorm(self.q_a_proj(x)) if self.c.q_rank else None
        q = self.q_proj(x) if latent is None else self.q_b_proj(latent)
        return q.unflatten(-1, (self.c.heads, -1)), latent

    def keys_values(self, x, cache):
        """[B,T,D] -> k [B,T,H,nope+shared], v [B,T,H,V], through what the cache keeps."""
        latent, shared = self.kv_a_proj_with_mqa(x).split([self.c.kv_rank, self.c.shared], -1)
        latent, shared = stored(self.kv_a_layernorm(latent), cache), stored(shared, cache)
        k, v = self.kv_b_proj(latent).unflatten(-1, (self.c.heads, -1)).split([self.c.nope, self.c.v], -1)
        return torch.cat((k, shared[:, :, None].expand(-1, -1, self.c.heads, -1)), -1), v

    def forward(self, x, run):
        """[B,T,D] -> [B,T,D]."""
        length = x.shape[1]
        q, q_latent = self.queries(x)
        k, v = self.keys_values(x, run.numerics.cache)
        index = self.indexer.prepare(x, q_latent, run.numerics) if hasattr(self, "indexer") else None
        out = []
        for first in range(0, length, QUERY_ROWS):
            rows = slice(first, min(first + QUERY_ROWS, length))
            logits = torch.einsum("brhd,bshd->bhrs", q[:, rows], k) / math.sqrt(self.c.nope + self.c.shared)
            keep = torch.ones(length, length, dtype=torch.bool).tril()[rows][None]
            if index:
                keep = self.selected(index, rows, keep[0], logits, run)
            attention = logits.masked_fill(~keep[:, None], -math.inf).softmax(-1)
            out.append(torch.einsum("bhrs,bshd->brhd", attention, v))
        out = torch.cat(out, 1).flatten(-2)
        return self.o_proj(out * torch.sigmoid(self.g_proj(x)) if self.c.gated else out)

    def selected(self, index, rows, causal, attention, run):
        """The indexer's choice for some query rows: bool [B,R,S]."""
        q, w, k = index
        dots, scores = self.indexer.score(q[:, rows], w[:, rows], k)
        keep = self.indexer.select(scores, causal)
        if run.watch:
            run.selections.append(Selection(self.layer, rows.start, dots, w[:, rows], scores, keep, attention))
        return keep


# ------------------------------------------------------------------------------------------------ feed-forward, experts

class FeedForward(nn.Module):
    def __init__(self, c, inner):
        super().__init__()
        self.c, self.gate_proj, self.up_proj = c, linear(c.hidden, inner), linear(c.hidden, inner)
        self.down_proj = linear(inner, c.hidden)

    def forward(self, x, run):
        return self.down_proj(gated(self.c, self.gate_proj(x), self.up_proj(x)))


class Expert(nn.Module):
    """w1 is the gate, w3 the up, w2 the down projection."""

    def __init__(self, c, width):
        super().__init__()
        self.c, self.w1, self.w3 = c, linear(width, c.moe.inner), linear(width, c.moe.inner)
        self.w2 = linear(c.moe.inner, width)

    def forward(self, x, run):
        apply = lambda matrix, y: F.linear(y, run.expert_weight(matrix.weight))
        return apply(self.w2, gated(self.c, apply(self.w1, x), apply(self.w3, x)))


class Router(nn.Module):
    """Chooses A experts a token. The correction bias takes part in the choice and never in the weights."""

    def __init__(self, c, layer):
        super().__init__()
        self.c, self.layer = c.moe, layer
        self.weight = nn.Parameter(torch.zeros(c.moe.experts, c.hidden))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(c.moe.experts))

    def allowed(self, choice):
        """choice [N,E] -> (bool [N,E]: experts of the best groups, group scores [N,G]). A group's score: its two best experts, summed."""
        if self.c.groups == 1:
            return torch.ones_like(choice, dtype=torch.bool), None
        grouped = choice.unflatten(-1, (self.c.groups, -1))
        score = grouped.topk(min(2, grouped.shape[-1]), -1).values.sum(-1)
        kept = mark(score, best(score, self.c.active_groups))
        return kept[..., None].expand_as(grouped).flatten(-2), score

    def forward(self, x, run):
        """x [N,D] -> ids [N,A], weights [N,A]."""
        logits = F.linear(x, self.weight)
        score = torch.sigmoid(logits) if self.c.router == "sigmoid" else logits.softmax(-1)
        choice = score + self.e_score_correction_bias
        allowed, groups = self.allowed(choice)
        ids = best(choice.masked_fill(~allowed, -math.inf), self.c.active)
        weights = score.gather(-1, ids)
        if self.c.renormalize:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if run.watch:
            run.routings.append(Routing(self.layer, choice, groups, allowed, ids))
        return ids, weights * self.c.scale


class LatentMoE(nn.Module):
    """down projection to the latent -> weighted sum of experts -> norm -> up projection, beside always-on shared experts."""

    def __init__(self, c, layer):
        super().__init__()
        self.c, width = c.moe, c.moe.latent or c.hidden
        self.gate = Router(c, layer)
        self.experts = nn.ModuleList(Expert(c, width) for _ in range(self.c.experts))
        if self.c.latent:
            self.routed_expert_down_proj, self.routed_expert_up_proj = linear(c.hidden, width), linear(width, c.hidden)
            if self.c.latent_norm:
                self.routed_expert_norm = RMSNorm(width, c.eps)
        if self.c.shared:
            self.shared_experts = FeedForward(c, self.c.shared * self.c.inner)

    def routed(self, x, ids, weights, run):
        """x [N,W], ids and weights [N,A] -> [N,W]: the weighted sum of the chosen experts."""
        total = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slots = torch.where(ids == e)
            if len(rows):
                total = total.index_add(0, rows, weights[rows, slots, None] * expert(x[rows], run))
        return total

    def forward(self, x, run):
        """[B,T,D] -> [B,T,D]."""
        rows = x.flatten(0, 1)
        ids, weights = self.gate(rows, run)
        out = self.routed(self.routed_expert_down_proj(rows) if self.c.latent else rows, ids, weights, run)
        if self.c.latent:
            out = self.routed_expert_up_proj(self.routed_expert_norm(out) if self.c.latent_norm else out)
        if self.c.shared:
            out = out + self.shared_experts(rows, run)
        return out.view_as(x)


# ------------------------------------------------------------------------------------------- depth: Attention Residuals

class Stream:
    """What the layers pass on: `closed`, the sums of finished blocks (the first is the embedding), and `open`, the running sum."""

    def __init__(self, x):
        self.closed, self.open = [], x

    def close_block(self):
        self.closed.append(self.open)
        self.open = 0

    def add(self, delta):
        self.open = self.open + delta


class DepthMix(nn.Module):
    """Attention over depth: a learned query scores RMSNorm of each candidate, and the raw candidates are averaged by softmax."""

    def __init__(self, c):
        super().__init__()
        self.norm, self.proj = RMSNorm(c.hidden, c.eps), linear(c.hidden, 1)

    def forward(self, stream):
        """-> [B,T,D]."""
        candidates = torch.stack(stream.closed + [stream.open])          # [N,B,T,D]
        return (self.proj(self.norm(candidates)).softmax(0) * candidates).sum(0)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        is_moe = c.moe is not None and index >= c.moe.first_layer
        self.opens_block = c.block is not None and index % c.block == 0
        self.self_attn = KimiDeltaAttention(c) if index in c.kda_layers else GatedMLA(c, index)
        if is_moe:
            self.block_sparse_moe = LatentMoE(c, index)
        else:
            self.mlp = FeedForward(c, c.dense_inner)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c.hidden, c.eps), RMSNorm(c.hidden, c.eps)
        if c.block:
            self.self_attention_res, self.mlp_res = DepthMix(c), DepthMix(c)

    def entry(self, stream):
        """What enters the layer, before its input norm: [B,T,D]."""
        return self.self_attention_res(stream) if hasattr(self, "self_attention_res") else stream.open

    def forward(self, stream, run):
        """Adds this layer's two outputs to the stream. A block that ends here has its last say in this layer's entry."""
        x = self.entry(stream)
        if self.opens_block:
            stream.close_block()
        stream.add(self.self_attn(self.input_layernorm(x), run))
        x = self.mlp_res(stream) if hasattr(self, "mlp_res") else stream.open
        ffn = self.block_sparse_moe if hasattr(self, "block_sparse_moe") else self.mlp
        stream.add(ffn(self.post_attention_layernorm(x), run))


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.norm = RMSNorm(c.hidden, c.eps)
        if c.block:
            self.output_attn_res = DepthMix(c)


@dataclass(frozen=True)
class Taps:
    """Hidden states to hand to a draft model. layers: 0-based, ascending.

    kind "mixture": what enters the layer after the named one, before its input norm; "sum": the open sum after the named layer.
    """
    kind: str
    layers: tuple


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.model, self.lm_head = c, Trunk(c), linear(c.hidden, c.vocab)
        if c.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids, run=None, taps=None):
        """ids [B,T] -> logits [B,T,vocab]; with taps (logits, [B,T,len(layers)*D])."""
        run, taken = run or Run(), []
        if taps and taps.kind == "mixture" and max(taps.layers) + 1 >= self.c.layers:
            raise ValueError("a mixture tap is the entry of the next layer: the last layer has none")
        stream = Stream(self.model.embed_tokens(ids))
        for i, layer in enumerate(self.model.layers):
            if taps and taps.kind == "mixture" and i - 1 in taps.layers:
                taken.append(layer.entry(stream))
            layer(stream, run)
            if taps and taps.kind == "sum" and i in taps.layers:
                taken.append(stream.open)
        x = self.model.output_attn_res(stream) if self.c.block else stream.open
        logits = self.lm_head(self.model.norm(x))
        return (logits, torch.cat(taken, -1)) if taps else logits
