"""Words of configurations for data types, with the bytes of a number."""

from __future__ import annotations

from collections.abc import Mapping

#: Types of weights and gradients in mixed precision with bf16.
SIZES: Mapping[str, str] = {
    **dict.fromkeys(("bfloat16", "bf16", "torch.bfloat16"), "2 B"),
    **dict.fromkeys(("float32", "fp32", "torch.float32"), "4 B"),
}
#: The same with fp16.
SIZES_WITH_FP16: Mapping[str, str] = {
    **SIZES,
    **dict.fromkeys(("float16", "fp16", "torch.float16"), "2 B"),
}
