"""Golden data of the MX codecs: code tables, 4,096 blocks with their codes and scales, and checksums over 1,000,000 blocks.

    make_mx_golden.py OUT

tests/golden/mx/README.md describes the files.
"""
import sys
from pathlib import Path

import numpy as np

import mx

FORMATS = {"mxfp8": mx.quantize_mxfp8, "mxfp4": mx.quantize_mxfp4}
RULES = ("floor", "ceil")
CHECKSUM_BLOCKS, PIECE = 1_000_000, 50_000
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(seed, first, count):
    """uint64 [count]: outputs first, first+1, ... of splitmix64."""
    z = np.uint64(seed) + (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * GOLDEN
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def generated_values(first, count):
    """float32 [count]: signs and mantissas at random, exponents from -40 to 23."""
    z = splitmix64(1, first, count)
    exponent = np.uint64(127 - 40) + (z >> np.uint64(52) & np.uint64(63))
    bits = z >> np.uint64(63) << np.uint64(31) | exponent << np.uint64(23) | z & np.uint64(0x7FFFFF)
    return bits.astype(np.uint32).view(np.float32)


def weighted_sum(data, first):
    """sum of data[i] * (2 * (first + i) + 1) modulo 2**64."""
    place = np.arange(first, first + data.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return int((data.astype(np.uint64) * place).sum(dtype=np.uint64))


def checksum(quantize, rule):
    """The weighted sum over all code bytes, then all scale bytes, of the generated blocks."""
    total = 0
    for block in range(0, CHECKSUM_BLOCKS, PIECE):
        codes, scales = quantize(generated_values(block * mx.BLOCK, PIECE * mx.BLOCK), rule)
        block_bytes = codes.size // PIECE
        total += weighted_sum(codes, block * block_bytes) + weighted_sum(scales, CHECKSUM_BLOCKS * block_bytes + block)
    return total % 2 ** 64


def around(values):
    """float32 [3n]: each value and its two float32 neighbours."""
    values = np.asarray(values, np.float32)
    return np.concatenate((np.nextafter(values, np.float32(0)), values, np.nextafter(values, np.float32(np.inf))))


def edge_elements(element):
    """Magnitudes where a code begins or ends: codes, midpoints, past the largest; with float32 neighbours. For scale 1."""
    v = element.values
    return around(np.concatenate((v, (v[:-1] + v[1:]) / 2, v[-1] * np.array([1.01, 1.03, 1.07, 1.14, 1.3]))))


def edge_blocks(rng, element, count):
    """float32 [count,32]: elements at code edges under a peak that fixes the scale, in scales from denormal to nearly overflow."""
    edges, out = edge_elements(element), np.empty((count, mx.BLOCK), np.float32)
    for row in out:
        scale = int(rng.integers(-130, 127 - element.emax))
        picked = rng.choice(edges, mx.BLOCK) * rng.choice((-1, 1), mx.BLOCK)
        picked[rng.integers(mx.BLOCK)] = rng.choice(around([1, 1.25, 1.5, 1.75, 1.875, 1.99])) * 2.0 ** element.emax
        row[:] = np.ldexp(picked, scale)
    return out


def test_blocks():
    """float32 [4096,32], all finite."""
    rng = np.random.default_rng(1)
    normal = lambda n: rng.standard_normal((n, mx.BLOCK)).astype(np.float32)
    bits = lambda n, low, high: (rng.integers(low, high, (n, mx.BLOCK), dtype=np.uint32)
                                 | rng.integers(0, 2, (n, mx.BLOCK), dtype=np.uint32) << np.uint32(31)).view(np.float32)
    zeros = np.zeros((16, mx.BLOCK), np.float32)
    zeros[1::2] = -0.0
    zeros[4:] = rng.choice(np.array([0.0, -0.0], np.float32), zeros[4:].shape)
    sparse = normal(240) * (rng.random((240, mx.BLOCK)) < 0.1)
    signs = rng.choice(np.array([-1, 1], np.float32), (256, mx.BLOCK))
    powers = np.ldexp(signs, rng.integers(-149, 128, (256, 1)) - rng.integers(0, 4, (256, mx.BLOCK)))
    parts = [zeros, sparse, powers, edge_blocks(rng, mx.E4M3, 768), edge_blocks(rng, mx.E2M1, 768),
             normal(1024) * np.exp2(rng.integers(-20, 20, (1024, 1))),
             bits(256, 0, 1 << 23), bits(256, 0, 3 << 23), bits(256, 0x7E000000, 0x7F800000), bits(256, 0, 0x7F800000)]
    return np.concatenate(parts).astype(np.float32)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    np.concatenate((mx.E4M3.table(), mx.E2M1.table(), mx.e8m0_table())).astype("<f4").tofile(out / "tables.f32")
    blocks = test_blocks()
    blocks.astype("<f4").tofile(out / "blocks.f32")
    lines = []
    for name, quantize in FORMATS.items():
        for rule in RULES:
            codes, scales = quantize(blocks, rule)
            codes.tofile(out / f"{name}-{rule}.codes.u8")
            scales.tofile(out / f"{name}-{rule}.scales.u8")
            lines.append(f"{name} {rule} {checksum(quantize, rule):016x}")
    (out / "checksums.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
