"""Entries for the GPU profile: honest CUDA work, CUDA work gone wrong, and the attack battery beside a live context.

These run inside the sandbox. Each writes one JSON object to its first descriptor; times are of the monotonic clock, in
nanoseconds, and are read by the child, for benchmarks only.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from typing import Any, NoReturn

import sandbox_attacks

_SIZE = 1024


def matmul(descriptors: tuple[int, ...], _: bytes) -> None:
    """Multiply two matrices on the device and compare a row with the same product on the CPU."""
    times = {"first": time.monotonic_ns()}
    result = _torch_work(times)
    os.write(descriptors[0], json.dumps({**result, "times": times}).encode())


def attack_beside_cuda(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Use the device first, then run the attacks of the request."""
    _torch_work({})
    sandbox_attacks.main(descriptors, argument)


def cubin(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Load the CUBIN named by the argument with the driver alone and launch its kernel `twice`."""
    times = {"first": time.monotonic_ns()}
    driver = _Driver()
    times["initialised"] = time.monotonic_ns()
    function = driver.function(argument.decode(), b"twice")
    values = driver.allocate([1.0, 2.0, 3.0, 4.0])
    driver.launch(function, values, 4)
    got = driver.fetch(values, 4)
    times["done"] = time.monotonic_ns()
    os.write(descriptors[0], json.dumps({"correct": got == [2.0, 4.0, 6.0, 8.0], "times": times}).encode())


def endless_kernel(descriptors: tuple[int, ...], argument: bytes) -> NoReturn:
    """Start the kernel `forever`, say so, and wait for it."""
    driver = _Driver()
    function = driver.function(argument.decode(), b"forever")
    driver.launch(function, driver.allocate([0.0]), 1, wait=False)
    os.write(descriptors[0], b"{}")
    driver.call("cuCtxSynchronize")
    raise AssertionError("the kernel ended")


def touch_memory(_: tuple[int, ...], __: bytes) -> None:
    """Fill host memory without end."""
    kept = []
    while True:
        kept.append(b"\1" * (16 << 20))


def _torch_work(times: dict[str, int]) -> dict[str, Any]:
    import torch  # preloaded by the fork server; imported here so that this module loads without it

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    times["initialised"] = time.monotonic_ns()
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(_SIZE, _SIZE, generator=generator)
    right = torch.randn(_SIZE, _SIZE, generator=generator)
    product = (left.cuda() @ right.cuda())[:1].cpu()
    times["done"] = time.monotonic_ns()
    correct = bool(torch.allclose(product, left[:1] @ right, rtol=1e-2, atol=1e-1))
    return {"correct": correct, "device": torch.cuda.get_device_name(0)}


class _Driver:
    """As much of the CUDA driver as one launch needs."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the driver; any status but success is an error."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise OSError(f"{name} returned {status}")

    def function(self, path: str, name: bytes) -> ctypes.c_void_p:
        """Load a CUBIN and return one of its kernels."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        with open(path, "rb") as file:
            self.call("cuModuleLoadData", ctypes.byref(module), file.read())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def allocate(self, values: list[float]) -> ctypes.c_uint64:
        """Copy float32 values to new device memory."""
        place = ctypes.c_uint64()
        host = (ctypes.c_float * len(values))(*values)
        self.call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(ctypes.sizeof(host)))
        self.call("cuMemcpyHtoD_v2", place, host, ctypes.c_size_t(ctypes.sizeof(host)))
        return place

    def launch(self, function: ctypes.c_void_p, place: ctypes.c_uint64, threads: int, *, wait: bool = True) -> None:
        """Launch one block whose only parameter is a pointer."""
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(place), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, None, parameters, None)
        if wait:
            self.call("cuCtxSynchronize")

    def fetch(self, place: ctypes.c_uint64, count: int) -> list[float]:
        """Copy float32 values back."""
        host = (ctypes.c_float * count)()
        self.call("cuMemcpyDtoH_v2", host, place, ctypes.c_size_t(ctypes.sizeof(host)))
        return list(host)


ENTRIES = {
    name: f"sandbox_gpu_entries:{name}"
    for name in ("matmul", "attack_beside_cuda", "cubin", "endless_kernel", "touch_memory")
}
KERNELS = """
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }
extern "C" __global__ void forever(volatile float *x) { while (x[0] == 0.0f) { } }
"""
