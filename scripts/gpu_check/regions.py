"""Memory that client and server share."""

from __future__ import annotations

import base64
import ctypes
import itertools
import mmap
import os
import shutil
from pathlib import Path

import numpy as np

from .driver import call

_numbers = itertools.count()


class Region:
    """`path` is the protocol's word for its kind."""

    path: str

    def __init__(self, byte_size: int):
        self.name = f"gpu_check_{os.getpid()}_{next(_numbers)}"
        self.byte_size = byte_size

    def description(self) -> dict:
        """What the server needs to open it."""
        raise NotImplementedError

    def write(self, array: np.ndarray) -> None:
        raise NotImplementedError

    def read(self) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


SHM = Path("/dev/shm")


def room() -> int:
    """Bytes that are free for system shared memory."""
    return shutil.disk_usage(SHM).free if SHM.is_dir() else 0


class SystemRegion(Region):
    path = "systemsharedmemory"

    def __init__(self, byte_size: int):
        super().__init__(byte_size)
        self.file = SHM / self.name
        with self.file.open("x+b") as file:
            try:
                # Room that is promised and not there would be a SIGBUS in whoever touches it first.
                os.posix_fallocate(file.fileno(), 0, byte_size)
            except OSError as error:
                self.file.unlink()
                raise RuntimeError(f"{SHM} has no room for {byte_size} bytes: {error.strerror}") from None
            self.memory = mmap.mmap(file.fileno(), byte_size)

    def description(self) -> dict:
        return {"key": f"/{self.name}", "offset": 0, "byte_size": self.byte_size}

    def write(self, array: np.ndarray) -> None:
        self.memory[: array.nbytes] = array.tobytes()

    def read(self) -> bytes:
        return self.memory[:]

    def close(self) -> None:
        self.memory.close()
        self.file.unlink()


# What is smaller is cut from memory that another process would then see too: NVIDIA advises to share whole pieces.
SHARED_PIECE = 2 << 20


class CudaRegion(Region):
    """Memory of GPU 0 that the server opens by a handle."""

    path = "cudasharedmemory"

    def __init__(self, byte_size: int):
        super().__init__(byte_size)
        # A handle names a whole allocation, and torch cuts tensors out of larger ones: hence the driver's own.
        self.pointer = ctypes.c_uint64()
        pieces = -(-byte_size // SHARED_PIECE)
        call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(pieces * SHARED_PIECE))

    def description(self) -> dict:
        handle = (ctypes.c_char * 64)()
        call("cuIpcGetMemHandle", handle, self.pointer)
        return {"raw_handle": {"b64": base64.b64encode(bytes(handle)).decode()}, "device_id": 0, "byte_size": self.byte_size}

    def write(self, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        call("cuMemcpyHtoD_v2", self.pointer, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))
        # From ordinary memory that may return before the bytes have arrived, and the server looks without waiting.
        call("cuCtxSynchronize")

    def read(self) -> bytes:
        room = ctypes.create_string_buffer(self.byte_size)
        call("cuMemcpyDtoH_v2", room, self.pointer, ctypes.c_size_t(self.byte_size))
        return room.raw

    def close(self) -> None:
        call("cuMemFree_v2", self.pointer)
