"""OCP Microscaling formats (MX v1.0) as this model family stores them: MXFP4 for expert weights, MXFP8 for index keys.

Thirty-two neighbouring values of a row share one scale, a power of two kept as a byte: scale = 2**(byte - 127), byte 255 = NaN.
The scale comes from the block's largest magnitude, peak = m * 2**e with 1 <= m < 2:

    floor rule   byte - 127 = e - emax                         the OCP rule; a peak over the largest code saturates
    ceil rule    one more where m > largest / 2**emax          the smallest scale at which nothing saturates

kept inside 0..254. An element is x / scale, rounded to the nearest code, halfway cases to the even code, saturated, sign kept
(also of a zero). A block of zeros has byte 0. NaN and infinity have no code here: they are refused.
"""
from dataclasses import dataclass

import numpy as np

BLOCK = 32


def _positive_values(mantissa_bits, codes, bias):
    """float64 [codes]: the non-negative values of a small float format, in order of their codes."""
    code = np.arange(codes)
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    significand = mantissa / (1 << mantissa_bits) + (exponent > 0)
    return np.ldexp(significand, np.maximum(exponent, 1) - bias)


@dataclass(frozen=True)
class Element:
    """One element format. values float64 [n]: its non-negative values by code; sign: the code bit of a minus."""
    values: np.ndarray
    sign: int

    @property
    def emax(self):
        """Exponent of the largest value."""
        return int(np.floor(np.log2(self.values[-1])))

    def thresholds(self):
        """float64 [n-1]: the smallest magnitude that rounds to code 1, 2, ...: a midpoint belongs to its even neighbour."""
        middle = (self.values[:-1] + self.values[1:]) / 2
        odd_below = np.arange(len(middle)) % 2 == 1
        return np.where(odd_below, middle, np.nextafter(middle, np.inf))

    def encode(self, x):
        """float64 [...] -> uint8 [...] codes."""
        code = np.searchsorted(self.thresholds(), np.abs(x), side="right").astype(np.uint8)
        return code | (np.signbit(x).astype(np.uint8) * np.uint8(self.sign))

    def table(self):
        """float32 [2 * sign]: the value of every code; codes past the largest value are NaN."""
        half = np.full(self.sign, np.nan)
        half[: len(self.values)] = self.values
        return np.concatenate((half, -half)).astype(np.float32)


E2M1 = Element(_positive_values(1, 8, 1), 0x08)
E4M3 = Element(_positive_values(3, 127, 7), 0x80)


def e8m0_table():
    """float32 [256]: the factor of every scale byte."""
    return np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))


def shared_exponents(blocks, element, rule):
    """float64 [..., 32] -> int64 [...]: the unbiased scale exponent of each block."""
    if rule not in ("floor", "ceil"):
        raise ValueError(f"MX scale rule {rule!r}: want floor or ceil")
    if not np.isfinite(blocks).all():
        raise ValueError("MX formats cannot hold NaN or infinity")
    peak = np.abs(blocks).max(axis=-1)
    half, exponent = np.frexp(peak)                                   # peak = half * 2**exponent, half in [1/2, 1)
    shared = exponent.astype(np.int64) - 1 - element.emax
    if rule == "ceil":
        shared += 2 * half > element.values[-1] / 2.0 ** element.emax
    return np.clip(np.where(peak > 0, shared, -127), -127, 127)


def _encode(x, element, rule):
    """float [..., n] -> (codes uint8 [..., n], scales uint8 [..., n/32]). Values are taken as float32."""
    blocks = np.asarray(x, np.float32).astype(np.float64).reshape(*x.shape[:-1], -1, BLOCK)
    shared = shared_exponents(blocks, element, rule)
    codes = element.encode(np.ldexp(blocks, -shared[..., None]))
    return codes.reshape(x.shape), (shared + 127).astype(np.uint8)


def _decode(codes, scales, element):
    """(uint8 [..., n], uint8 [..., n/32]) -> float32 [..., n]."""
    blocks = element.table()[codes].reshape(*scales.shape, BLOCK)
    return (blocks * e8m0_table()[scales][..., None]).reshape(codes.shape)


def quantize_mxfp8(x, rule="floor"):
    """float [..., n] -> (E4M3 codes uint8 [..., n], scales uint8 [..., n/32])."""
    return _encode(x, E4M3, rule)


def dequantize_mxfp8(codes, scales):
    """Inverse of quantize_mxfp8: float32 [..., n]."""
    return _decode(codes, scales, E4M3)


def quantize_mxfp4(x, rule="floor"):
    """float [..., n] -> (packed uint8 [..., n/2], scales uint8 [..., n/32]); even columns lie in the low nibbles."""
    codes, scales = _encode(x, E2M1, rule)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scales


def dequantize_mxfp4(packed, scales):
    """Inverse of quantize_mxfp4: float32 [..., n]."""
    codes = np.stack((packed & 15, packed >> 4), axis=-1).reshape(*packed.shape[:-1], -1)
    return _decode(codes, scales, E2M1)
