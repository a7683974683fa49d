"""Kernels without a GPU: interpreted, compiled for an H100, and where they are not used."""

from __future__ import annotations

import importlib
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engine_toys import toy_pool

from fedclust.engines import choose
from fedclust.engines.fused import gpu

TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux only")
HERE = Path(__file__).parent
CPU = torch.device("cpu")


@pytest.mark.slow
@TRITON
def test_kernels_give_what_pytorch_gives() -> None:
    """In a process of its own, since the interpreter is chosen when Triton is imported."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        HERE / "interpreted_kernels.py",
    ]
    paths = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def assembled(
    name: str, constants: dict[str, object], numbers: dict[str, str], known: list[str]
) -> str:
    """What cuobjdump says of a kernel for compute capability 9.0.

    Args:
        name: file and function.
        constants: by name.
        numbers: the type of every other argument.
        known: arguments that are multiples of 16, besides addresses.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    file, function = name.split(".")
    module = importlib.import_module(f"fedclust.engines.fused.cuda.{file}")
    kernel = getattr(module, function)
    kinds = {arg: "constexpr" if arg in constants else numbers[arg] for arg in kernel.arg_names}
    whole = {
        (i,): [["tt.divisibility", 16]]
        for i, arg in enumerate(kinds)
        if kinds[arg][0] == "*" or arg in known
    }
    source = ASTSource(kernel, kinds, constants, whole)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=module.OPTIONS).asm[
        "cubin"
    ]
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as kept:
        Path(kept.name).write_bytes(binary)
        return subprocess.run(
            [tool, "--dump-resource-usage", kept.name], capture_output=True, text=True, check=True
        ).stdout


@pytest.fixture
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def assert_in_registers(usage: str) -> None:
    """A stack is what does not fit in registers."""
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    assert int(found[1]) <= 255
    assert found[2] == "0"


@pytest.mark.full
@TRITON
@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize("kind", ["*u8", "*fp32"])
@pytest.mark.parametrize("size", [784, 3072, 60])
def test_the_gather_is_assembled(kind: str, size: int) -> None:
    from fedclust.engines.fused.cuda import gather

    floats = dict.fromkeys(("scale", "shift", "out"), "*fp32")
    runs = dict.fromkeys(
        ("rows", "steps", "scale_run", "scale_count", "shift_run", "shift_count"), "i32"
    )
    numbers = {"index": "*i64", "x": kind, **floats, **runs}
    usage = assembled("gather.normalised_rows", gather.blocks(size), numbers, [])
    assert_in_registers(usage)


_QUICK = [
    (sizes, 10, "ieee", spanned) for sizes in [(10, 784), (10, 3072)] for spanned in (False, True)
]
# each size meets both batches, with a span and without; each product all of these
_PRODUCTS = ("ieee", "tf32", "bf16")
_MORE = [
    pytest.param(
        sizes, batch, _PRODUCTS[(i + j) % 3], (i // 3 + j) % 2 == 0, marks=pytest.mark.slow
    )
    for i, sizes in enumerate([(10, 784), (10, 60), (10, 30), (62, 784), (128, 784), (2, 5)])
    for j, batch in enumerate((10, 100))
]


@pytest.mark.full
@TRITON
@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize(("sizes", "batch", "product", "spanned"), [*_QUICK, *_MORE])
def test_regression_is_assembled(
    sizes: tuple[int, int], batch: int, product: str, spanned: bool
) -> None:
    """With everything that a row may keep beside its weights."""
    from fedclust.engines.fused.cuda import softmax

    classes, width = sizes
    constants = {
        "SPANNED": spanned,
        "ORIGINS": 3 if spanned else 0,
        "MOMENTUM": True,
        "ANCHOR": not spanned,
        "BIAS": True,
        "BIAS_ANCHOR": True,
        "WEIGHTED": True,
        "PRODUCT": product,
        **softmax.blocks(batch, classes, width),
    }
    state = "weight slot anchor bias bias_slot bias_anchor share first delta loss"
    tensors = f"inputs outputs_0 outputs_1 outputs_2 factors {state}"
    numbers = {
        **dict.fromkeys(tensors.split(), "*fp32"),
        **dict.fromkeys(("example", "label", "size"), "*i64"),
        **dict.fromkeys(("rows", "examples", "width", "classes", "steps", "batch", "early"), "i32"),
        **dict.fromkeys(("lr", "momentum", "decay", "bias_decay", "pull"), "fp32"),
    }
    assert_in_registers(
        assembled("softmax.local_steps", constants, numbers, ["width"] * (width % 16 == 0))
    )


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels may run on the CPU, and none was tried yet."""
    monkeypatch.setenv("FEDCLUST_KERNELS", "all")
    monkeypatch.setattr(gpu, "runs_on", lambda _: True)
    gpu._tried.cache_clear()
    yield
    gpu._tried.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("failure", ["no Triton", "the compiler", "other numbers"])
def test_a_kernel_that_fails_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    def agrees(_: torch.device) -> bool:
        if failure == "the compiler":
            raise RuntimeError("Internal Triton PTX codegen error\nptxas: no such file")
        return False

    def found(name: str) -> SimpleNamespace:
        if failure == "no Triton":
            raise ModuleNotFoundError("No module named 'triton'")
        return SimpleNamespace(agrees=agrees)

    monkeypatch.setattr(gpu, "import_module", found)
    pool, index = toy_pool((1, 4, 4)), torch.tensor([3, 5])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            gathered = choose._prepared(pool).inputs(index)
            assert torch.equal(gathered, pool.x[index] * pool.scale + pool.shift)
    assert caplog.text.count("the kernel gather") == 1
    reasons = {"no Triton": "'triton'", "the compiler": "ptxas", "other numbers": "other numbers"}
    assert reasons[failure] in caplog.text


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    gpu._can_be_launched.cache_clear()
    yield
    gpu._can_be_launched.cache_clear()


def test_where_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCLUST_KERNELS", "gather")
    assert not gpu.runs_on(CPU)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpu, "find_spec", lambda _: True)
    assert gpu.runs_on(torch.device("cuda:1"))
    assert not gpu.runs_on(CPU)
    monkeypatch.setenv("FEDCLUST_KERNELS", "none")
    assert not gpu.runs_on(torch.device("cuda:1"))


@pytest.mark.parametrize("missing", ["Triton", "a GPU", "a GPU of this maker"])
def test_where_they_do_not(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setenv("FEDCLUST_KERNELS", "all")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: missing != "a GPU")
    monkeypatch.setattr(torch.version, "cuda", None if missing == "a GPU of this maker" else "13.0")
    monkeypatch.setattr(gpu, "find_spec", lambda _: None if missing == "Triton" else True)
    assert not gpu.runs_on(torch.device("cuda:0"))


@pytest.mark.full
def test_triton_is_imported_for_a_gpu_only() -> None:
    module = "fedclust.engines.fused.cuda.gather"
    code = f"import fedclust.config.build, sys; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
