"""Train the demo model on a CPU: train.py OUT HOURS [--resume] [--workers N]

OUT holds the tokenizer (make_tokenizer.py) and receives the checkpoint every SAVE_EVERY steps and at the end, with train_state.pt beside it for
--resume: HOURS counts all runs together. As in the papers on sparse attention, the model sees only what its indexers select, and they learn from a
KL term towards the attention that would have been. Late in training the experts' weights pass through MXFP4, so what is stored is what was trained.
"""
import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch
import torch.distributed as dist
import torch.nn.functional as F

import documents

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "spec"))
import bpe
import checkpoint
import k31
import mx
from config import Config

LENGTH, ROWS = 320, 4                      # tokens of a window, windows a worker takes per step
PEAK_RATE, LAST_RATE, WARMUP = 1.2e-3, 0.02, 80      # learning rate; its share at the end; steps
HOLD, QUANTIZE_FROM = 0.3, 0.6             # shares of the time: constant rate until, MXFP4 experts from
INDEXER_WEIGHT, BALANCE_RATE = 0.1, 1e-3
REPORT_EVERY, SAVE_EVERY = 10, 300         # steps

TEXT_CONFIG = {
    "model_type": "kimi_linear", "vocab_size": 2048, "hidden_size": 192, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 512, "rms_norm_eps": 1e-5, "hidden_act": "situ", "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0, "tie_word_embeddings": False, "max_position_embeddings": 1048576, "dtype": "bfloat16",
    "linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8], "num_heads": 4, "head_dim": 64,
                           "short_conv_kernel_size": 4, "gate_lower_bound": -5.0, "use_full_rank_gate": True},
    "q_lora_rank": 96, "kv_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
    "mla_use_nope": True, "mla_use_output_gate": True,
    "dsa_config": {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 64, "dsa_layers": [4, 8]},
    "attn_res_block_size": 4, "num_experts": 16, "num_experts_per_token": 4, "num_shared_experts": 2, "moe_intermediate_size": 96,
    "routed_expert_hidden_size": 96, "latent_moe_use_norm": True, "moe_router_activation_func": "sigmoid", "moe_renormalize": True,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1,
    "use_grouped_topk": True, "quantization_config": checkpoint.QUANTIZATION,
}


class ThroughMXFP4(torch.autograd.Function):
    """A matrix as MXFP4 would return it; its gradient passes unchanged."""

    @staticmethod
    def forward(ctx, weight):
        packed, scales = mx.quantize_mxfp4(weight.detach().numpy())
        return torch.from_numpy(mx.dequantize_mxfp4(packed, scales))

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def config_json(tokenizer):
    ids = {f"{role}_token_id": tokenizer.special[name]
           for role, name in (("bos", "[BOS]"), ("eos", "<|end_of_msg|>"), ("pad", "[PAD]"))}
    return {"architectures": ["KimiK31ForConditionalGeneration"], "model_type": "kimi_k3", "text_config": {**TEXT_CONFIG, **ids}}


def initialize(model):
    """Projections keep the scale of their input; depth mixes begin uniform; decays begin slow and spread."""
    for name, p in model.named_parameters():
        if name.endswith("_res.proj.weight"):
            torch.nn.init.zeros_(p)
        elif "embed_tokens" in name:
            torch.nn.init.normal_(p, std=0.02)
        elif name.endswith("dt_bias"):
            torch.nn.init.uniform_(p, -5.0, -1.0)
        elif p.dim() >= 2:
            torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5)


def make_optimizer(model):
    """AdamW; matrices decay, vectors and the embedding do not."""
    decays = lambda name, p: p.dim() >= 2 and "embed_tokens" not in name
    parts = [[p for name, p in model.named_parameters() if decays(name, p) == wanted] for wanted in (True, False)]
    return torch.optim.AdamW([{"params": parts[0], "weight_decay": 0.05}, {"params": parts[1], "weight_decay": 0.0}],
                             betas=(0.9, 0.95), eps=1e-9)


def rate(step, progress):
    """Linear warm-up in steps, constant until HOLD of the time, then linear down to LAST_RATE."""
    left = 1.0 if progress < HOLD else max(LAST_RATE, (1 - progress) / (1 - HOLD))
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP) * left


def indexer_loss(selections):
    """Cross-entropy from the mean of the heads' full causal attention to the softmax of the index scores."""
    total = 0
    for s in selections:
        causal = torch.ones_like(s.keep[0]).tril()
        wanted = s.attention.detach().masked_fill(~causal, -math.inf).softmax(-1).mean(1)
        given = s.scores.masked_fill(~causal, -math.inf).log_softmax(-1).masked_fill(~causal, 0)
        total = total - (wanted * given).sum(-1).mean()
    return total


def expert_loads(routings):
    """-> float [MoE layers, E]: how often each expert was taken."""
    return torch.stack([torch.bincount(r.ids.flatten(), minlength=r.choice.shape[-1]).float() for r in routings])


def backward(model, rows, quantize):
    """One worker's gradients. rows [ROWS,LENGTH+1] -> (language loss, expert loads)."""
    run = k31.Run(watch=True, expert_weight=ThroughMXFP4.apply if quantize else k31.unchanged)
    logits = model(rows[:, :-1], run)
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    (loss + INDEXER_WEIGHT * indexer_loss(run.selections)).backward()
    return loss.item(), expert_loads(run.routings)


def average_gradients(model, loads):
    """Means over workers, in place of every gradient (zero where this worker had none) and of the loads."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    flat = torch.cat([p.grad.flatten() for p in model.parameters()] + [loads.flatten()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    sizes = [p.numel() for p in model.parameters()] + [loads.numel()]
    *gradients, mean_loads = flat.split(sizes)
    for p, gradient in zip(model.parameters(), gradients):
        p.grad.copy_(gradient.view_as(p))
    return mean_loads.view_as(loads)


def balance(model, loads):
    """Nudge each router's choice towards the experts that were taken too seldom."""
    routers = [layer.block_sparse_moe.gate for layer in model.model.layers if hasattr(layer, "block_sparse_moe")]
    for router, load in zip(routers, loads):
        router.e_score_correction_bias.data += BALANCE_RATE * torch.sign(load.mean() - load)


class Training:
    """One worker's copy of everything; copies stay equal because they start equal and take equal steps."""

    def __init__(self, args):
        torch.manual_seed(0)
        self.out, self.tokenizer = args.out, bpe.Tokenizer.load(args.out)
        self.config = config_json(self.tokenizer)
        self.model = k31.Model(Config.parse(self.config))
        initialize(self.model)
        self.optimizer, self.step, spent = make_optimizer(self.model), 0, 0.0
        if args.resume:
            state = torch.load(self.out / "train_state.pt")
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, spent = state["step"], state["spent"]
        self.budget, self.began = args.hours * 3600, time.time() - spent

    def progress(self):
        """Share of the time that has passed, by the first worker's clock."""
        now = torch.tensor((time.time() - self.began) / self.budget)
        dist.broadcast(now, 0)
        return now.item()

    def batches(self):
        """Endless int64 [ROWS,LENGTH+1]; every worker and every run reads in an order of its own."""
        rng = random.Random(1_000_003 * dist.get_rank() + self.step)
        windows = documents.windows(self.tokenizer, documents.read_jargon(), rng, LENGTH)
        while True:
            yield torch.tensor([next(windows) for _ in range(ROWS)])

    def advance(self, rows, progress):
        """One step -> this worker's loss before it."""
        loss, loads = backward(self.model, rows, progress > QUANTIZE_FROM)
        loads = average_gradients(self.model, loads)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.step, progress)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        balance(self.model, loads)
        self.step += 1
        return loss

    def save(self):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                    "spent": time.time() - self.began}, self.out / "train_state.pt")
        checkpoint.save(self.model, self.out, self.config)
        text = self.config["text_config"]
        generation = {"bos_token_id": text["bos_token_id"], "eos_token_id": text["eos_token_id"], "temperature": 0.7, "top_p": 0.95}
        (self.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def work(rank, args, rendezvous):
    """One worker's life."""
    torch.set_num_threads(1)                 # small matrices: a second thread only spins
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=args.workers)
    training, losses, since = Training(args), [], time.time()
    for rows in training.batches():
        progress = training.progress()
        if progress >= 1:
            break
        losses.append(training.advance(rows, progress))
        if rank == 0 and training.step % REPORT_EVERY == 0:
            tokens = len(losses) * args.workers * ROWS * LENGTH
            mean, speed = sum(losses) / len(losses), tokens / (time.time() - since)
            print(f"step {training.step} loss {mean:.4f} {speed:.0f} tokens/s {progress:.1%}", flush=True)
            losses, since = [], time.time()
        if rank == 0 and training.step % SAVE_EVERY == 0:
            training.save()
    if rank == 0:
        training.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("hours", type=float)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (args, f"{folder}/rendezvous"), args.workers)


if __name__ == "__main__":
    main()
