"""Safetensors files, and the published checkpoint layout of the family.

Layout: every matrix BF16 [out, in]; routed experts MXFP4 as `X.weight_packed` + `X.weight_scale` where the config has a quantization_config;
convolutions, decay parameters, the KDA output norm and the router's bias F32. A tensor is a pair (dtype tag, numpy array); BF16 is kept as uint16.
"""
import json
import re
import struct
from pathlib import Path

import numpy as np
import torch

import k31
import mx
from config import Config

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8"}
FLOAT32_NAMES = ("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias")
A_LOG_SLOTS = 128            # K3 stores one value a head in a vector of 128, the rest zero
QUANTIZATION = {
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {
        "format": "mxfp4-pack-quantized", "targets": ["Linear"], "input_activations": None, "output_activations": None,
        "weights": {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False,
                    "scale_dtype": "torch.uint8", "actorder": None, "block_structure": None}}},
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*"],
}


# --------------------------------------------------------------------------------------------------------- safetensors

def to_bf16(x):
    """float32 [...] -> uint16 [...], nearest, halfway to even."""
    return torch.from_numpy(np.ascontiguousarray(x, np.float32)).bfloat16().view(torch.int16).numpy().view(np.uint16)


def from_bf16(bits):
    """uint16 [...] -> float32 [...]."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def write_file(path, tensors):
    """tensors {name: (tag, array)}, stored in this order."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (tag, array) in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tag, array in tensors.values():
            out.write(np.ascontiguousarray(array.astype(DTYPES[tag], copy=False)).tobytes())


def read_file(path):
    """-> {name: (tag, array)}."""
    data = Path(path).read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header, tensors = json.loads(data[8:start]), {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        tensors[name] = entry["dtype"], np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def read_directory(directory):
    """All tensors of a checkpoint, in one file or in shards with an index."""
    index = Path(directory) / "model.safetensors.index.json"
    files = {"model.safetensors"} if not index.exists() else set(json.loads(index.read_text())["weight_map"].values())
    return {name: tensor for file in sorted(files) for name, tensor in read_file(Path(directory) / file).items()}


def write_directory(directory, tensors, shards=1):
    """One file, or `shards` files that take tensors in turn, and their index."""
    if shards == 1:
        return write_file(directory / "model.safetensors", tensors)
    names, weight_map = list(tensors), {}
    for k in range(shards):
        file = f"model-{k + 1:05d}-of-{shards:06d}.safetensors"
        write_file(directory / file, {name: tensors[name] for name in names[k::shards]})
        weight_map.update((name, file) for name in names[k::shards])
    index = {"metadata": {"total_size": sum(array.nbytes for _, array in tensors.values())}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------ published layout

def published_name(name):
    """Model attribute path -> tensor name: a depth mix has no level of its own in the checkpoint."""
    return re.sub(r"(_res)\.(norm|proj)\.", r"\1_\2.", name)


def attribute_name(name):
    """Tensor name -> model attribute path, or None for what the text model does not use. Re-exports vary the prefix."""
    name = re.sub(r"^(model\.)?language_model\.", "", name)
    if name.startswith(("vision_tower.", "mm_projector.")):
        return None
    if not name.startswith(("model.", "lm_head.")):
        name = "model." + name
    return re.sub(r"(_res)_(norm|proj)\.", r"\1.\2.", name)


def published_tensors(model, name, value, quantize):
    """One parameter (float32 array) -> {tensor name: (tag, array)}."""
    name = published_name(name)
    if quantize and ".experts." in name:
        packed, scales = mx.quantize_mxfp4(value)
        return {name + "_packed": ("U8", packed), name + "_scale": ("U8", scales)}
    if name.endswith("A_log"):
        slots = (max(A_LOG_SLOTS, len(value)),) if model.c.block else (1, 1, len(value), 1)
        value = np.pad(value, (0, int(np.prod(slots)) - len(value))).reshape(slots)
    if name.endswith(FLOAT32_NAMES):
        return {name: ("F32", value)}
    return {name: ("BF16", to_bf16(value))}


def save(model, directory, config, shards=1):
    """Write config.json (the given dict) and the tensors. A nested config has tensor names under `language_model.`."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    prefix = "language_model." if "text_config" in config else ""
    quantize = "quantization_config" in config.get("text_config", config)
    tensors = {}
    for name, parameter in model.state_dict().items():
        if not (model.c.tied and name == "lm_head.weight"):
            tensors.update(published_tensors(model, prefix + name, parameter.float().numpy(), quantize))
    write_directory(directory, tensors, shards)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(directory, dtype=torch.float64):
    """The model with the checkpoint's weights, dequantized."""
    model, raw, state = k31.Model(Config.load(directory)), read_directory(directory), {}
    for name, (tag, array) in raw.items():
        attribute = attribute_name(name)
        if attribute is None or name.endswith(".weight_scale"):
            continue
        if name.endswith(".weight_packed"):
            attribute = attribute.removesuffix("_packed")
            array = mx.dequantize_mxfp4(array, raw[name.removesuffix("packed") + "scale"][1])
        elif tag == "BF16":
            array = from_bf16(array)
        if name.endswith("A_log"):
            array = array.reshape(-1)[: model.c.kda.heads]
        state[attribute] = torch.from_numpy(np.array(array, np.float32))
    if model.c.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model.to(dtype).eval()
