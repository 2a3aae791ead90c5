"""How a volume gets to the server and its masks back: in the request itself, in system shared memory, or in CUDA memory.

A carrier hands out the array to fill, and after the request the arrays that were answered. Used as a context, it gives back
what it took, whatever happened.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack

import numpy as np
from tritonclient.utils import np_to_triton_dtype
from tritonclient.utils import shared_memory as system_memory

from . import ClientError
from .server import LARGEST_BODY, Server

SHARED_MEMORY = "/dev/shm"
PREFIX = "spleenseg_client_"


def need_shared_memory(nbytes: int, folder: str = SHARED_MEMORY) -> None:
    """Writing more than there is would end this process with SIGBUS; containers often have 64 MB only."""
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if free < nbytes:
        raise ClientError(
            f"{folder} has {free / 1e6:.0f} MB free, this volume needs {nbytes / 1e6:.0f} MB; "
            "in a container start it with --shm-size=1g, or send without shared memory (--transport network)"
        )


class Network:
    """Tensors travel within the request."""

    name = "network"

    def __init__(self, server: Server):
        self.server = server
        self.given: np.ndarray | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_exc) -> None:
        self.given = None

    def prepare(self, shape: list[int], dtype: np.dtype, outputs: dict[str, tuple[list[int], np.dtype]]) -> np.ndarray:
        """Takes the memory for a request and returns the array to fill. Sizes are checked before anything is copied."""
        sizes = {"the request": _nbytes(shape, dtype), "the answer": sum(_nbytes(*o) for o in outputs.values())}
        for what, nbytes in sizes.items():
            if nbytes > LARGEST_BODY:
                raise ClientError(
                    f"{what} has {nbytes / 1e9:.2f} GB, {self.server.address.protocol} carries at most 2; send it over shared "
                    "memory on the server's machine, or declare INPUT0 as TYPE_INT16 and the outputs as TYPE_UINT8"
                )
        self.given = np.empty(shape, dtype)
        return self.given

    def tensors(self, outputs: dict):
        module = self.server.module
        given = module.InferInput("INPUT0", list(self.given.shape), np_to_triton_dtype(self.given.dtype))
        given.set_data_from_numpy(self.given)
        return given, [module.InferRequestedOutput(name) for name in outputs]

    def read(self, result, outputs: dict) -> dict[str, np.ndarray]:
        found = {name: result.as_numpy(name) for name in outputs}
        missing = [name for name, array in found.items() if array is None]
        if missing:
            raise ClientError(f"the server's answer lacks {', '.join(missing)}")
        return found


class _Regions:
    """Shared memory of any kind: a region for each tensor, known to the server while the carrier is entered."""

    def __init__(self, server: Server):
        self.server = server
        self.regions: dict = {}
        self.given: np.ndarray | None = None
        self._stack = ExitStack()

    def __enter__(self):
        self._stack.__enter__()
        return self

    def __exit__(self, *exc):
        self.given = None
        return self._stack.__exit__(*exc)

    def _check(self, nbytes: int) -> None:
        """Whether there is room."""

    def _create(self, name: str, nbytes: int):
        raise NotImplementedError

    def prepare(self, shape: list[int], dtype: np.dtype, outputs: dict[str, tuple[list[int], np.dtype]]) -> np.ndarray:
        sizes = {"INPUT0": _nbytes(shape, dtype)} | {name: _nbytes(*o) for name, o in outputs.items()}
        self._check(sum(sizes.values()))
        for tensor, nbytes in sizes.items():
            name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
            self.regions[tensor] = (name, self._create(name, nbytes), nbytes)
        self.given = self._input(shape, dtype)
        return self.given

    def tensors(self, outputs: dict):
        module = self.server.module
        given = module.InferInput("INPUT0", list(self.given.shape), np_to_triton_dtype(self.given.dtype))
        name, _, nbytes = self.regions["INPUT0"]
        given.set_shared_memory(name, nbytes)
        wanted = []
        for tensor in outputs:
            name, _, nbytes = self.regions[tensor]
            wanted.append(module.InferRequestedOutput(tensor))
            wanted[-1].set_shared_memory(name, nbytes)
        return given, wanted


class SystemMemory(_Regions):
    name = "system shared memory"

    def _check(self, nbytes: int) -> None:
        need_shared_memory(nbytes)

    def _create(self, name: str, nbytes: int):
        handle = system_memory.create_shared_memory_region(name, f"/{name}", nbytes)
        self._stack.callback(system_memory.destroy_shared_memory_region, handle)
        self.server.ask("register_system_shared_memory", name, f"/{name}", nbytes)
        self._stack.callback(self.server.release, "unregister_system_shared_memory", name)
        return handle

    def _input(self, shape, dtype) -> np.ndarray:
        # A view: the one copy that fills it also converts type, order and orientation.
        return system_memory.get_contents_as_numpy(self.regions["INPUT0"][1], dtype, shape)

    def read(self, result, outputs: dict) -> dict[str, np.ndarray]:
        return {
            name: np.array(system_memory.get_contents_as_numpy(self.regions[name][1], dtype, shape))
            for name, (shape, dtype) in outputs.items()
        }


class CudaMemory(_Regions):
    name = "CUDA shared memory"
    device = 0

    def __init__(self, server: Server):
        super().__init__(server)
        try:
            from tritonclient.utils import cuda_shared_memory
        except (ImportError, RuntimeError) as error:
            raise ClientError(
                f"CUDA shared memory needs a GPU and the package cuda-python below 13 (pip install 'cuda-python<13'): {error}"
            ) from None
        self.cuda = cuda_shared_memory

    def _create(self, name: str, nbytes: int):
        try:
            handle = self.cuda.create_shared_memory_region(name, nbytes, self.device)
        except self.cuda.CudaSharedMemoryException as error:
            raise ClientError(f"no {nbytes / 1e6:.0f} MB of memory on GPU {self.device}: {error}") from None
        self._stack.callback(self.cuda.destroy_shared_memory_region, handle)
        self.server.ask("register_cuda_shared_memory", name, self.cuda.get_raw_handle(handle), self.device, nbytes)
        self._stack.callback(self.server.release, "unregister_cuda_shared_memory", name)
        return handle

    def _input(self, shape, dtype) -> np.ndarray:
        return np.empty(shape, dtype)

    def tensors(self, outputs: dict):
        self.cuda.set_shared_memory_region(self.regions["INPUT0"][1], [self.given])
        return super().tensors(outputs)

    def read(self, result, outputs: dict) -> dict[str, np.ndarray]:
        return {
            name: self.cuda.get_contents_as_numpy(self.regions[name][1], dtype, shape) for name, (shape, dtype) in outputs.items()
        }


TRANSPORTS = {"network": Network, "system": SystemMemory, "cuda": CudaMemory}


def choose(server: Server, wanted: str = "auto"):
    """The carrier to use. auto: system shared memory where the server can open it, else within the request."""
    if wanted != "auto":
        return TRANSPORTS[wanted]
    if not server.address.on_this_machine():
        return Network
    try:
        # In a container of its own a server has this machine's address and not its memory.
        with SystemMemory(server) as probe:
            probe.prepare([8], np.dtype(np.uint8), {})
    except ClientError:
        return Network
    return SystemMemory


def _nbytes(shape, dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
