"""How close a run's discrete choices were: the distance, as a share of the row's spread, between what was taken and what was left.

An engine that rounds differently may legitimately choose otherwise where the distance is near zero; goldens avoid such rows.
"""
import math

import torch


def _boundary(scores, taken):
    """scores [N,M], taken bool [N,M], -inf = not a candidate -> [N]: (lowest taken - highest left) / spread; inf if nothing is left."""
    low = scores.masked_fill(~taken, math.inf).amin(-1)
    high = scores.masked_fill(taken, -math.inf).amax(-1)
    spread = scores.amax(-1) - scores.masked_fill(scores == -math.inf, math.inf).amin(-1)
    return torch.where(spread > 0, (low - high) / spread, math.inf)


def router_gaps(routing, moe):
    """k31.Routing, config.MoeConfig -> [N]: the smaller of the expert boundary (inside the allowed groups) and the group boundary."""
    taken = torch.zeros_like(routing.allowed).scatter(-1, routing.ids, True)
    gaps = _boundary(routing.choice.masked_fill(~routing.allowed, -math.inf), taken)
    if routing.groups is not None:
        best = torch.sort(routing.groups, dim=-1, descending=True, stable=True).indices[:, :moe.active_groups]
        chosen = torch.zeros_like(routing.groups, dtype=torch.bool).scatter(-1, best, True)
        gaps = torch.minimum(gaps, _boundary(routing.groups, chosen))
    return gaps


def selection_gaps(selection):
    """k31.Selection of one sequence -> [R].

    Positions that every index head's ReLU cuts off score exactly zero, and the lower position wins by rule. Where the boundary falls
    among them, the gap is instead how near any other score, or any cut-off product, comes to zero.
    """
    scores, keep = selection.scores[0], selection.keep[0]
    rows, positions = scores.shape
    causal = torch.arange(positions) <= selection.first + torch.arange(rows)[:, None]
    gaps = _boundary(scores.masked_fill(~causal, -math.inf), keep)
    for r in torch.where((gaps == 0) & (scores.masked_fill(~keep, math.inf).amin(-1) == 0))[0].tolist():
        row = scores[r][causal[r]]
        products = (selection.weights[0, r, :, None] * selection.dots[0, r])[:, causal[r]]
        near_zero = torch.cat((products[:, row == 0].flatten(), row[row != 0])).abs().min()
        gaps[r] = near_zero / (row.max() - row.min())
    return gaps


def smallest(run, config):
    """k31.Run of one sequence, watched -> {"router" | "selection": (per-token gaps [T], per-token layers, 0-based [T])}."""
    found = {}
    routers = [(r.layer, router_gaps(r, config.moe)) for r in run.routings]
    layers = sorted({s.layer for s in run.selections})
    selections = [(layer, torch.cat([selection_gaps(s) for s in run.selections if s.layer == layer])) for layer in layers]
    for kind, parts in (("router", routers), ("selection", selections)):
        if parts:
            gaps, which = torch.stack([gaps for _, gaps in parts]).min(0)
            found[kind] = gaps, torch.tensor([layer for layer, _ in parts])[which]
    return found
