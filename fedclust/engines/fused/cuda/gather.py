"""Rows of a pool as a model sees them: gathered, converted and normalised in one pass."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

# of a program: 32 numbers a thread, whose loads are all under way at once
_ROWS, _COLUMNS = (
    4,
    1024,
)
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


@triton.jit(do_not_specialize=["rows", "steps"], do_not_specialize_on_alignment=["index"])
def normalised_rows(
    index, x, scale, shift, out,
    rows, steps,
    scale_run, scale_count, shift_run, shift_count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """out[r] = x[index[r]] * scale + shift for some rows and columns of steps * STEP.

    Column c takes the number (c // run) % count of scale and of shift.
    """
    # known to be a multiple of STEP, so a thread takes STEP neighbours; more bytes could be read at
    # once, but most would be handed over before they are written, four times as long
    size = steps * STEP
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, real = row < rows, column < size
    # in 64 bits: pools may have more than 2^31 numbers
    source = tl.load(index + row, mask=inside, other=0) * size
    factor = tl.load(scale + column // scale_run % scale_count, mask=real, other=0.0)
    term = tl.load(shift + column // shift_run % shift_count, mask=real, other=0.0)
    mask = inside[:, None] & real[None, :]
    value = tl.load(x + source[:, None] + column[None, :], mask=mask, other=0).to(tl.float32)
    tl.store(
        out + (row * size)[:, None] + column[None, :],
        value * factor[None, :] + term[None, :],
        mask=mask,
    )


def rows_into(x: Tensor, index: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> None:
    """x[index] * scale + shift, written to `out`.

    Args:
        x: [N, *shape] uint8 or float32.
        index: int64, any shape.
        scale, shift: float32, broadcastable to `shape`.
        out: float32 [*index.shape, *shape], contiguous.
    """
    shape, rows = x.shape[1:], index.numel()
    size = math.prod(shape)
    if rows and size:
        (scale, *scales), (shift, *shifts) = _runs(scale, shape), _runs(shift, shape)
        grid, sizes = (-(-rows // _ROWS), -(-size // _COLUMNS)), blocks(size)
        with torch.cuda.device_of(x):
            normalised_rows[grid](
                index.reshape(-1), x.contiguous(), scale, shift, out,
                rows, size // sizes["STEP"], *scales, *shifts, **sizes, **OPTIONS,
            )  # fmt: skip


def blocks(size: int) -> dict[str, int]:
    """Rows and columns of a program, and neighbours of a thread, for examples of `size` numbers."""
    return {
        "ROWS": _ROWS,
        "COLUMNS": min(_COLUMNS, triton.next_power_of_2(size)),
        "STEP": 4 if size % 4 == 0 else 1,
    }


def _runs(numbers: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, int, int]:
    """Numbers that broadcast to `shape` as (numbers [count], run, count), see `normalised_rows`."""
    given = (1,) * (len(shape) - numbers.dim()) + tuple(numbers.shape)
    varies = [i for i, length in enumerate(given) if length > 1]
    if not varies:
        return numbers.reshape(-1), 1, 1
    first, last = varies[0], varies[-1] + 1
    # for instance by row and by channel, but not by column
    if given[first:last] != tuple(shape[first:last]):
        return numbers.expand(shape).reshape(-1), 1, math.prod(shape)
    return numbers.reshape(-1), math.prod(shape[last:]), math.prod(given)


def agrees(device: torch.device) -> bool:
    """Whether the kernel gives what PyTorch gives, on a few images."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.randint(0, 256, (9, 3, 5, 7), generator=generator, dtype=torch.uint8)
    index = torch.tensor([8, 0, 3, 3, 7, 1])
    scale, shift = torch.rand(2, 3, 1, 1, generator=generator)
    x, index, scale, shift = (part.to(device) for part in (pool, index, scale, shift))
    for rows in (x, x.to(torch.float32)):
        expected = rows[index].to(torch.float32) * scale + shift
        rows_into(rows, index, scale, shift, found := torch.empty_like(expected))
        if not torch.allclose(found, expected, rtol=1e-5, atol=1e-5):
            return False
    return True
