"""What libraries keep for the process or thread, set as the library begins while a job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def as_libraries_begin() -> Iterator[None]:
    """While the block runs, imported libraries compute as they begin: PyTorch makes tensors of 32
    bits on the CPU and records gradients, NumPy warns of overflows.
    """
    with ExitStack() as put_back:
        if "numpy" in sys.modules:
            import numpy as np

            put_back.enter_context(np.errstate(all="warn", under="ignore"))
        if "torch" in sys.modules:
            import torch

            put_back.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
            if torch.get_default_device().type != "cpu":  # each call costs more inside
                put_back.enter_context(torch.device("cpu"))
            put_back.enter_context(torch.inference_mode(mode=False))
            put_back.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    put_back.enter_context(torch.autocast(device, enabled=False))
            mkldnn: Any = torch.backends.mkldnn  # engines say it of the products of a GPU
            for product in (mkldnn.matmul, mkldnn.conv, mkldnn.rnn, torch.backends.cuda.matmul):
                put_back.callback(setattr, product, "fp32_precision", product.fp32_precision)
                product.fp32_precision = "ieee"
        yield
