"""Decoders of quantised blocks, written from the layout of their bytes, for all blocks at once."""

import numpy as np


def half(data, at):
    return data[:, at : at + 2].copy().view("<f2").astype(np.float32)


def nibbles(data):
    return np.concatenate([data & 15, data >> 4], axis=1).astype(np.float32)


def high_bits(data, at):
    bits = data[:, at : at + 4].copy().view("<u4")
    return ((bits >> np.arange(32, dtype=np.uint32)) & 1) * 16


def q8_0(data):
    return half(data, 0) * data[:, 2:].view(np.int8)


def q4_0(data):
    return half(data, 0) * (nibbles(data[:, 2:]) - 8)


def q4_1(data):
    return half(data, 0) * nibbles(data[:, 4:]) + half(data, 2)


def q5_0(data):
    return half(data, 0) * (nibbles(data[:, 6:]) + high_bits(data, 2) - 16)


def q5_1(data):
    return half(data, 0) * (nibbles(data[:, 8:]) + high_bits(data, 4)) + half(data, 2)


def q2_k(data):
    out = np.empty((len(data), 256), np.float32)
    for i in range(256):
        part, place = divmod(i, 128)
        scale = data[:, i // 16]
        value = data[:, 16 + 32 * part + place % 32] >> (2 * (place // 32)) & 3
        out[:, i] = half(data, 80)[:, 0] * (scale & 15) * value - half(data, 82)[:, 0] * (
            scale >> 4
        )
    return out


def q3_k(data):
    out = np.empty((len(data), 256), np.float32)
    for i in range(256):
        part, place = divmod(i, 128)
        j = i // 16
        low = data[:, 96 + j % 8] >> (4 * (j // 8)) & 15
        top = data[:, 104 + j % 4] >> (2 * (j // 4)) & 3
        value = (data[:, 32 + 32 * part + place % 32] >> (2 * (place // 32)) & 3).astype(int)
        value -= 4 * (1 - (data[:, place % 32] >> (4 * part + place // 32) & 1).astype(int))
        out[:, i] = half(data, 108)[:, 0] * ((low | top << 4).astype(int) - 32) * value
    return out


def six_bit_scales(data, j):
    s = data[:, 4:16]
    if j < 4:
        return s[:, j] & 63, s[:, j + 4] & 63
    return s[:, j + 4] & 15 | s[:, j - 4] >> 6 << 4, s[:, j + 4] >> 4 | s[:, j] >> 6 << 4


def q4_k(data, first=16, fifth=lambda i: 0):
    out = np.empty((len(data), 256), np.float32)
    for i in range(256):
        scale, least = six_bit_scales(data, i // 32)
        value = data[:, first + 32 * (i // 64) + i % 32] >> (4 * (i // 32 % 2)) & 15
        value = value + 16 * fifth(i)
        out[:, i] = half(data, 0)[:, 0] * scale * value - half(data, 2)[:, 0] * least
    return out


def q5_k(data):
    return q4_k(data, 48, lambda i: data[:, 16 + i % 32] >> (i // 32) & 1)


def q6_k(data):
    out = np.empty((len(data), 256), np.float32)
    scales = data[:, 192:208].view(np.int8)
    for i in range(256):
        part, place = divmod(i, 128)
        quarter, rest = divmod(place, 32)
        low = data[:, 64 * part + rest + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
        top = data[:, 128 + 32 * part + rest] >> (2 * quarter) & 3
        value = (low | top << 4).astype(int) - 32
        out[:, i] = half(data, 208)[:, 0] * scales[:, i // 16] * value
    return out
