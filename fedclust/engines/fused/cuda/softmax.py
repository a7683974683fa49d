"""All local steps of softmax regression models in one launch, a program per row (client).

`native/softmax.c` says what is computed, `native/perceptron.c` in which coordinates. Here the
parameters w [k, o] are changed where they lie, in blocks of features, so that any number of
features and examples will do; a row's weights and a batch stay in the cache of the multiprocessor.
Tiles of all of 784-10 would spill. With g the gradient of the batch (spanned: of its coefficients)

    u = momentum * u + g + kept * w - pull * anchor;   w = w + scale * u,

where scale and kept are -lr and decay, or, spanned, 1 and -lr * decay, since coefficients count in
-lr.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

# all registers of a thread are asked for, since the assembler may aim at half of them and spill a
# few
OPTIONS = {"num_warps": 8, "num_stages": 1, "maxnreg": 255, "enable_fp_fusion": True}
# features of one product: the logits are few, so the features are shared out among threads too
_PART = 16
_BLOCK = 4096  # numbers of a block of weights or examples; more of them spill


@triton.jit
def _product(a, b, c, PRODUCT: tl.constexpr):
    """a @ b + c; PRODUCT says how factors are rounded: not at all (ieee), to tf32 or to bf16."""
    if PRODUCT == "bf16":
        # exact in TF32; the interpreter has no product of bfloat16 numbers
        a, b = a.to(tl.bfloat16).to(tl.float32), b.to(tl.bfloat16).to(tl.float32)
        c = tl.dot(a, b, c, input_precision="tf32")
    else:
        c = tl.dot(a, b, c, input_precision=PRODUCT)
    return c


@triton.jit(do_not_specialize=["rows", "examples", "steps", "batch", "early"])
def local_steps(
    inputs, outputs_0, outputs_1, outputs_2, factors,
    weight, slot, anchor, bias, bias_slot, bias_anchor,
    example, label, size, share, first, delta, loss,
    rows, examples, width, classes, steps, batch, early,
    lr, momentum, decay, bias_decay, pull,
    SPANNED: tl.constexpr, ORIGINS: tl.constexpr, MOMENTUM: tl.constexpr, ANCHOR: tl.constexpr,
    BIAS: tl.constexpr, BIAS_ANCHOR: tl.constexpr, WEIGHTED: tl.constexpr, PRODUCT: tl.constexpr,
    B: tl.constexpr, Y: tl.constexpr, K: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """See `train`; takes B examples, Y classes, K features at once, logits from PART features."""
    row = tl.program_id(0).to(tl.int64)  # in 64 bits, as all that is counted through the rows
    b, o, k = tl.arange(0, B), tl.arange(0, Y), tl.arange(0, K)
    split = tl.arange(0, K // PART)[:, None] * PART + tl.arange(0, PART)[None, :]
    real = o < classes
    if SPANNED:  # [k, o]
        scale, kept, feature, output = 1.0, -lr * decay, classes, 1
    else:  # [o, k]
        scale, kept, feature, output = -lr, decay, 1, width
    weight += row * width * classes
    slot += row * width * classes
    anchor += row * width * classes
    bias += row * classes
    bias_slot += row * classes
    bias_anchor += row * classes
    delta += row * tl.cdiv(batch, B) * B * Y
    example += row * batch
    label += row * batch
    size += row * steps
    share += row * batch
    first += row * early
    total = tl.zeros((), tl.float32)
    total_early = tl.zeros((), tl.float32)
    s = 0
    count = tl.load(size)
    while count > 0:
        each = 1.0 / count.to(tl.float32)
        met = tl.load(first + s, mask=s < early, other=0.0)
        if BIAS:
            old_bias = tl.load(bias + o, mask=real, other=0.0)
            bias_change = tl.zeros((Y,), tl.float32)
        # the gradient of the batch's loss by its logits goes to delta
        for b0 in range(0, count, B):
            inside = b0 + b < count
            e = tl.load(example + b0 + b, mask=inside, other=0)
            parts = tl.zeros((K // PART, B, Y), tl.float32)
            for k0 in range(0, width, K):
                i = k0 + split
                x = tl.load(
                    inputs + (e * width)[None, :, None] + i[:, None, :],
                    mask=inside[None, :, None] & (i < width)[:, None, :],
                    other=0.0,
                )
                w = tl.load(
                    weight + (i * feature)[:, :, None] + (o * output)[None, None, :],
                    mask=(i < width)[:, :, None] & real[None, None, :],
                    other=0.0,
                )
                parts = _product(x, w, parts, PRODUCT)
            z = tl.sum(parts, 0)
            if SPANNED:
                z *= -lr
                mask = inside[:, None] & real[None, :]
                at = (e * classes)[:, None] + o[None, :]
                z += tl.load(factors) * tl.load(outputs_0 + at, mask=mask, other=0.0)
                if ORIGINS > 1:
                    z += tl.load(factors + 1) * tl.load(outputs_1 + at, mask=mask, other=0.0)
                if ORIGINS > 2:
                    z += tl.load(factors + 2) * tl.load(outputs_2 + at, mask=mask, other=0.0)
            if BIAS:
                z += old_bias[None, :]
            z = tl.where(real[None, :], z, float("-inf"))
            z -= tl.max(z, 1)[:, None]
            right = tl.load(label + b0 + b, mask=inside, other=0)[:, None] == o[None, :]
            p = tl.exp(z)
            sums = tl.sum(p, 1)
            nats = tl.log(sums) - tl.sum(tl.where(right, z, 0.0), 1)
            d = p / sums[:, None] - tl.where(right, 1.0, 0.0)
            if WEIGHTED:
                own_share = tl.load(share + b0 + b, mask=inside, other=0.0)
                now = tl.sum(tl.where(inside, nats * own_share, 0.0), 0)
                d *= own_share[:, None]
            else:
                now = tl.sum(tl.where(inside, nats, 0.0), 0) * each
                d *= each
            total += now
            total_early += now * met
            d = tl.where(inside[:, None], d, 0.0)
            if BIAS:
                if PRODUCT == "bf16":
                    bias_change += tl.sum(d.to(tl.bfloat16).to(tl.float32), 0)
                else:
                    bias_change += tl.sum(d, 0)
            tl.store(delta + (b0 + b)[:, None] * Y + o[None, :], d)
        tl.debug_barrier()  # delta is read by other threads than wrote it
        for k0 in range(0, width, K):
            there = k0 + k < width
            g = tl.zeros((Y, K), tl.float32)
            for b0 in range(0, count, B):
                inside = b0 + b < count
                d = tl.load(delta + (b0 + b)[None, :] * Y + o[:, None])
                e = tl.load(example + b0 + b, mask=inside, other=0)
                if SPANNED:
                    own = (e - row * examples)[:, None] == (k0 + k)[None, :]
                    g = tl.dot(d, own.to(tl.float32), g, input_precision="ieee")
                else:
                    x = tl.load(
                        inputs + (e * width)[:, None] + (k0 + k)[None, :],
                        mask=inside[:, None] & there[None, :],
                        other=0.0,
                    )
                    g = _product(d, x, g, PRODUCT)
            mask = real[:, None] & there[None, :]
            at = (o * output)[:, None] + ((k0 + k) * feature)[None, :]
            w = tl.load(weight + at, mask=mask, other=0.0)
            g += kept * w
            if ANCHOR:
                g -= pull * tl.load(anchor + at, mask=mask, other=0.0)
            if MOMENTUM:
                g += momentum * tl.load(slot + at, mask=mask, other=0.0)
                tl.store(slot + at, g, mask=mask)
            tl.store(weight + at, w + scale * g, mask=mask)
        if BIAS:
            bias_change += bias_decay * old_bias
            if BIAS_ANCHOR:
                bias_change -= pull * tl.load(bias_anchor + o, mask=real, other=0.0)
            if MOMENTUM:
                bias_change += momentum * tl.load(bias_slot + o, mask=real, other=0.0)
                tl.store(bias_slot + o, bias_change, mask=real)
            tl.store(bias + o, old_bias - lr * bias_change, mask=real)
        tl.debug_barrier()  # weights are read by other threads than wrote them
        s += 1
        factors += ORIGINS
        example += rows.to(tl.int64) * batch
        label += rows.to(tl.int64) * batch
        share += rows.to(tl.int64) * batch
        count = tl.load(size + s, mask=s < steps, other=0)
    tl.store(loss + 2 * row, total / tl.maximum(s, 1).to(tl.float32))
    tl.store(loss + 2 * row + 1, total_early)


def train(
    *,
    inputs: Tensor,
    outputs: list[Tensor],
    factors: Tensor,
    weight: Tensor,
    slot: Tensor | None,
    anchor: Tensor | None,
    bias: Tensor | None,
    bias_slot: Tensor | None,
    bias_anchor: Tensor | None,
    example: Tensor,
    label: Tensor,
    size: Tensor,
    share: Tensor | None,
    first: Tensor,
    loss: Tensor,
    product: str,
    **numbers: float,
) -> None:
    """Moves the parameters, and their momenta, by all local steps; all tensors contiguous.

    Args:
        inputs: float32 [R, n, k], the rows' examples; spanned: their products, so that k is n.
        outputs: spanned: up to three float32 [R, n, o], what every origin gives; else none.
        factors: float32 [S, origins] of the outputs in every step.
        weight, slot: float32 [R, o, k]; spanned: coefficients [R, k, o]. No slot without momentum.
        anchor: float32 [R, o, k], or None.
        bias, bias_slot, bias_anchor: float32 [R, 1, o], or None.
        example, label: int64 [S, R, B], examples counted through all rows, and their classes.
        size: int64 [R, S] examples of every batch, 0 after the row's last step.
        loss: float32 [R], is given the mean over the steps, nats per example.
        product: ieee, tf32 or bf16, see `_product`.
        numbers: lr, momentum, decay, bias_decay and pull.
    """
    (rows, examples, width), (steps, _, batch) = inputs.shape, example.shape
    if not (rows and steps and batch):
        loss.zero_()
        return
    classes = weight.shape[2 if outputs else 1]
    shape = blocks(batch, classes, width)
    delta = inputs.new_empty(rows, -(-batch // shape["B"]) * shape["B"], shape["Y"])
    # where there is none, the kernel was compiled not to look
    slots = weight if slot is None else slot, weight if anchor is None else anchor
    biases = [weight if x is None else x for x in (bias, bias_slot, bias_anchor)]
    outs = [*outputs, *[weight] * (3 - len(outputs))]
    with torch.cuda.device_of(inputs):
        local_steps[(rows,)](
            inputs,
            *outs,
            factors,
            weight,
            *slots,
            *biases,
            example,
            label,
            size,
            weight if share is None else share,
            first,
            delta,
            loss,
            rows,
            examples,
            width,
            classes,
            steps,
            batch,
            first.shape[1],
            **numbers,
            SPANNED=bool(outputs),
            ORIGINS=len(outputs),
            MOMENTUM=slot is not None,
            ANCHOR=anchor is not None,
            BIAS=bias is not None,
            BIAS_ANCHOR=bias_anchor is not None,
            WEIGHTED=share is not None,
            PRODUCT=product,
            **shape,
            **OPTIONS,
        )


def blocks(batch: int, classes: int, width: int) -> dict[str, int]:
    """Examples, classes and features that a program takes at once; a product takes 16 or more."""
    b, o = 16 if batch <= 16 else 32, max(16, triton.next_power_of_2(classes))
    k = max(16, min(triton.next_power_of_2(width), _BLOCK // max(b, o)))
    return {"B": b, "Y": o, "K": k, "PART": _PART}


def agrees(device: torch.device) -> bool:
    """Whether the kernel gives PyTorch's numbers on two small clients, spanned or not, rounded."""
    allowed = {"ieee": 1e-4, "tf32": 1e-2, "bf16": 5e-2}
    examples = [_example(spanned=spanned) for spanned in (False, True)]
    return all(
        _gives(job, product, device, off) for job in examples for product, off in allowed.items()
    )


def _example(*, spanned: bool) -> dict[str, Any]:
    """Arguments of `train` made up on the CPU: several blocks of features or examples, padded."""
    rows, n, o, steps, batch = 2, 41, 5, 3, 36
    k = n if spanned else 150
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    order = torch.stack(
        [torch.randperm(n, generator=generator)[:batch] for _ in range(steps * rows)]
    )
    example = order.view(steps, rows, batch) + n * torch.arange(rows).unsqueeze(1)
    shape = (rows, k, o) if spanned else (rows, o, k)
    return {
        "inputs": draw(rows, n, k),
        "outputs": [draw(rows, n, o), draw(rows, n, o)] if spanned else [],
        "factors": draw(steps, 2),
        "weight": 0.1 * draw(shape),
        "slot": 0.1 * draw(shape),
        "anchor": None if spanned else draw(shape),  # in the span an anchor is one of the outputs
        "bias": draw(rows, 1, o),
        "bias_slot": draw(rows, 1, o),
        "bias_anchor": draw(rows, 1, o),
        "example": example,
        "label": torch.randint(o, example.shape, generator=generator),
        "size": torch.tensor([[36, 3, 33], [5, 0, 0]]),
        "share": None if spanned else torch.rand(steps, rows, batch, generator=generator),
        "first": torch.tensor([[0.8, 0.2], [1.0, 0.0]]),
        "loss": torch.zeros(rows, 2),
        **{"lr": 0.1, "momentum": 0.7, "decay": 0.05, "bias_decay": 0.02, "pull": 0.3},
    }


_MOVED = ("weight", "slot", "bias", "bias_slot", "loss")


def _gives(job: dict[str, Any], product: str, device: torch.device, off: float) -> bool:
    """Whether the kernel moves everything of a job as `_plainly` does, but for `off`."""
    there: dict[str, Any] = {**job, "outputs": [x.to(device) for x in job["outputs"]]}
    there |= {name: x.to(device, copy=True) for name, x in job.items() if isinstance(x, Tensor)}
    train(**there, product=product)
    here = {**job, **{name: job[name].clone() for name in _MOVED}}
    for row in range(len(here["loss"])):
        _plainly(here, row)
    return all(torch.allclose(there[name].cpu(), here[name], rtol=off, atol=off) for name in _MOVED)


def _plainly(job: dict[str, Any], row: int) -> None:
    """Local training of one row, step by step by PyTorch's operations on the CPU."""
    w, u, bias, v, loss = (job[name][row] for name in _MOVED)
    lr, momentum, x, first = (
        job["lr"],
        job["momentum"],
        job["inputs"][row],
        row * job["inputs"].shape[1],
    )
    sizes = [size for size in job["size"][row].tolist() if size]
    for step, size in enumerate(sizes):
        at, right = job["example"][step, row, :size] - first, job["label"][step, row, :size]
        z = bias + (-lr * x[at] @ w if job["outputs"] else x[at] @ w.T)
        for factor, out in zip(job["factors"][step], job["outputs"], strict=False):
            z = z + factor * out[row, at]
        share = torch.full((size,), 1 / size)
        if job["share"] is not None:
            share = job["share"][step, row, :size]
        now = share @ cross_entropy(z, right, reduction="none")
        loss[0] += now / len(sizes)
        loss[1] += now * (job["first"][row, step] if step < job["first"].shape[1] else 0)
        d = (z.softmax(1) - one_hot(right, z.shape[1])) * share.unsqueeze(1)
        if job["outputs"]:
            u.mul_(momentum).sub_(w, alpha=lr * job["decay"]).index_add_(0, at, d)
            w += u
        else:
            u.mul_(momentum).add_(d.T @ x[at] + job["decay"] * w - job["pull"] * job["anchor"][row])
            w -= lr * u
        v.mul_(momentum).add_(
            d.sum(0) + job["bias_decay"] * bias - job["pull"] * job["bias_anchor"][row]
        )
        bias -= lr * v
