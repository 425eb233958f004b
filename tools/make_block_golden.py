"""Makes tests/fixtures/blocks/<FORMAT>.bin: random blocks, and what the `gguf` package decodes.

Each file holds n blocks as raw bytes, then n * elements F32 values. The first blocks have special
scales (infinities, NaN, zeros, subnormals); all bytes of the rest are random, so any F16 may occur
as a scale. Fixed seed.

    python tools/make_block_golden.py
"""

import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where the F16 scales stand in a block.
SCALES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "IQ4_NL": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
SPECIAL = [0x7C00, 0xFC00, 0x7E01, 0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x3C00]


def main():
    out = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "blocks"
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    for name, scales in SCALES.items():
        kind = GGMLQuantizationType[name]
        elems, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (64 if elems == 32 else 24, size), dtype=np.uint8)
        for i in range(len(SPECIAL)):
            for k, at in enumerate(scales):  # a second scale gets another value
                blocks[i, at : at + 2] = np.frombuffer(
                    np.uint16(SPECIAL[(i + 4 * k) % len(SPECIAL)]).tobytes(), np.uint8
                )
        with np.errstate(all="ignore"):
            values = dequantize(blocks, kind).astype("<f4")
        assert values.shape == (len(blocks), elems)
        (out / f"{name}.bin").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
