"""A running Triton: how it is reached, and what its model takes, gives and is."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import warnings
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

import numpy as np

warnings.filterwarnings("ignore", message="pkg_resources is deprecated")  # tritonclient's own business
import tritonclient.grpc  # noqa: E402
import tritonclient.http  # noqa: E402
from geventhttpclient.response import HTTPParseError  # noqa: E402: what tritonclient.http lets through
from tritonclient.utils import InferenceServerException, triton_to_np_dtype  # noqa: E402

from . import ClientError, one_line  # noqa: E402
from .foreground import Rule  # noqa: E402

MODELS = ("spleen_seg_native", "spleen_seg")  # the first that the server has is used
STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
CONNECT_S = 10
# HTTP and gRPC carry bodies below 2 GiB: Triton reads larger ones not at all.
LARGEST_BODY = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class Address:
    """Where a server listens: HOST:PORT or http://, https://, grpc://, grpcs://HOST:PORT."""

    protocol: str  # http or grpc
    host: str
    port: int
    encrypted: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError:
            scheme, host, port = "", None, None
        known = {"http": 8000, "https": 443, "grpc": 8001, "grpcs": 443}
        if scheme not in known or not host or parts.path not in ("", "/"):
            raise ClientError(f"server address '{url}': accepted are HOST:PORT, http://, https://, grpc:// and grpcs://HOST:PORT")
        return cls(scheme.rstrip("s"), host, port or known[scheme], scheme.endswith("s"))

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def on_this_machine(self) -> bool:
        """Whether the host is one of this machine's own addresses: only those can be bound here."""
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_DGRAM)
        except OSError:
            return False
        for family, kind, _, _, address in found:
            try:
                with socket.socket(family, kind) as probe:
                    probe.bind((address[0], 0))
            except OSError:
                return False
        return bool(found)


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives."""

    model: str
    version: str
    input_type: np.dtype
    outputs: dict[str, tuple[list[int], np.dtype]]  # declared shape with the batch axis, and type
    native: bool  # it gives masks in the input's own grid
    rule: Rule | None
    network: str
    config_sha256: str

    def output_shape(self, name: str, sent: tuple[int, int, int]) -> list[int]:
        """Of one volume's output: -1 of a native output is the input's axis."""
        shape = self.outputs[name][0]
        if name.endswith("_NATIVE"):
            return [1] * (len(shape) - 3) + list(sent)
        if min(shape[-3:]) < 1:
            raise ClientError(
                f"model {self.model}: {name} is declared as {shape}; fixed dims are needed to size its memory, or a MASK_NATIVE"
            )
        return [1, *shape[1:]]


class Server:
    """One connection for each thread that uses it. ``with Server(url) as server:``"""

    def __init__(self, url: str, model: str | None = None, timeout_s: float = 600):
        self.address = Address.parse(url)
        self.timeout_s = timeout_s
        self.module = tritonclient.grpc if self.address.protocol == "grpc" else tritonclient.http
        self._wanted = model
        self._local = threading.local()
        self._clients: list = []
        self._left: list[tuple[str, str]] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def close(self) -> None:
        for what, name in self._left:
            try:
                self.ask(what, name)
            except ClientError:
                pass  # a request that nobody waits for still has it; the server keeps it until it is restarted
        self._left.clear()
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._local = threading.local()

    @property
    def grpc(self) -> bool:
        return self.address.protocol == "grpc"

    @property
    def client(self):
        if not hasattr(self._local, "client"):
            options = {"ssl": self.address.encrypted}
            if not self.grpc:
                options |= {"connection_timeout": CONNECT_S, "network_timeout": self.timeout_s}
            self._local.client = self.module.InferenceServerClient(self.address.netloc, **options)
            self._clients.append(self._local.client)
        return self._local.client

    def ask(self, what: str, *arguments, **options):
        """Calls a method of tritonclient; whatever fails is one line."""
        try:
            return getattr(self.client, what)(*arguments, **options)
        except InferenceServerException as error:
            if self.grpc and error.status() == "StatusCode.UNAVAILABLE" and "failed to connect" in str(error.message()):
                raise self._unreachable(error) from None
            if "decoding the response" in str(error.message()):  # an error that is not Triton's JSON
                raise self._stranger(error) from None
            raise ClientError(f"the server answered: {one_line(error.message())}") from None
        except (HTTPParseError, ValueError) as error:
            if what == "infer":  # one that has answered before
                raise ClientError(f"no answer from {self.address.netloc}: {one_line(error)}") from None
            raise self._stranger(error) from None
        except TimeoutError as error:
            if what == "infer":
                raise ClientError(f"no answer from {self.address.netloc} within {self.timeout_s:g} s") from None
            raise self._unreachable(error) from None
        except OSError as error:
            raise self._unreachable(error) from None

    def release(self, what: str, name: str) -> None:
        """Unregisters shared memory; what a request still uses, that was given up, is tried again on closing."""
        try:
            self.ask(what, name)
        except ClientError:
            self._left.append((what, name))

    def _unreachable(self, error) -> ClientError:
        return ClientError(f"no Triton at {self.address.protocol}://{self.address.netloc}: {one_line(error)}")

    def _stranger(self, error: Exception) -> ClientError:
        netloc = self.address.netloc
        # What cannot be parsed as HTTP may be gRPC; a body that is not JSON is of another server, or of Triton's metrics.
        hint = f"for gRPC write grpc://{netloc}" if isinstance(error, HTTPParseError) else "Triton's HTTP port is 8000 unless set otherwise"
        return ClientError(f"{netloc} does not speak Triton's HTTP; {hint}")

    def _json(self, what: str, *arguments) -> dict:
        return self.ask(what, *arguments, **({"as_json": True} if self.grpc else {}))

    @cached_property
    def metadata(self) -> dict:
        """Name and version of the server."""
        found = self._json("get_server_metadata")
        return {"name": found.get("name", ""), "version": found.get("version", "")}

    @cached_property
    def model(self) -> str:
        names = (self._wanted,) if self._wanted else MODELS
        _ = self.metadata  # another server than Triton knows no model either
        for name in names:
            if self.ask("is_model_ready", name):
                return name
        raise ClientError(f"no model {' or '.join(names)} is ready at {self.address.netloc}{self._ready()}")

    def _ready(self) -> str:
        """The models that are ready, for an error about one that is not."""
        try:
            found = self._json("get_model_repository_index")
        except ClientError:  # the operator may have closed it
            return ""
        models = found.get("models", []) if self.grpc else found
        names = sorted({entry["name"] for entry in models if entry.get("state") == "READY"})
        return f"; ready are: {', '.join(names) or 'none'}"

    def config(self, model: str) -> dict:
        found = self._json("get_model_config", model)
        return found.get("config", found)

    def _version(self, model: str) -> str:
        """The version that the server chooses: the highest one that is loaded."""
        versions = self._json("get_model_metadata", model).get("versions", [])
        return max(versions, key=lambda v: int(v) if v.isdigit() else -1, default="")

    @cached_property
    def interface(self) -> Interface:
        declared = self._json("get_model_metadata", self.model)
        inputs = {i["name"]: np.dtype(triton_to_np_dtype(i["datatype"])) for i in declared.get("inputs", [])}
        if "INPUT0" not in inputs or inputs["INPUT0"] not in (np.float32, np.int16):
            found = {name: str(dtype) for name, dtype in inputs.items()}
            raise ClientError(f"model {self.model} has the inputs {found}; needed is INPUT0 of type float32 or int16")
        outputs = {
            o["name"]: ([int(n) for n in o["shape"]], np.dtype(triton_to_np_dtype(o["datatype"]))) for o in declared.get("outputs", [])
        }
        native = "MASK_NATIVE" in outputs
        if not native and "MASK" not in outputs:
            raise ClientError(f"model {self.model} declares no output MASK_NATIVE or MASK, only {sorted(outputs)}")
        config = self.config(self.model)
        parameters = {key: value.get("string_value", "") for key, value in config.get("parameters", {}).items()}
        if not native and parameters.get("align_corners", "").strip().lower() == "true":
            raise ClientError(f"model {self.model} resizes with align_corners; its masks can be laid back only where it declares MASK_NATIVE")
        return Interface(
            self.model,
            self._version(self.model),
            inputs["INPUT0"],
            outputs,
            native,
            # Other backends may use voxels that this one does not.
            Rule.of_parameters(parameters) if config.get("backend") == "spleenseg" else None,
            parameters.get("segmentation_model", "segmentation_3d"),
            hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),
        )

    @cached_property
    def identity(self) -> dict[str, str]:
        """What decides the results, as far as the server tells: both models, their versions and configurations."""
        interface = self.interface
        found = {
            "server": " ".join(self.metadata.values()),
            "model": interface.model,
            "model_version": interface.version,
            "model_config_sha256": interface.config_sha256,
            "network": interface.network,
        }
        try:
            found["network_version"] = self._version(interface.network)
            config = json.dumps(self.config(interface.network), sort_keys=True)
            found["network_config_sha256"] = hashlib.sha256(config.encode()).hexdigest()
        except ClientError:
            found["network_version"] = ""  # not loaded now; the request will say so
        return found

    def totals(self) -> dict[str, dict[str, int]]:
        """Nanoseconds that each of the two models has spent in each stage so far, and requests that succeeded."""
        totals = {}
        interface = self.interface
        if not self.ask("is_model_ready", interface.network):
            raise ClientError(
                f"model {interface.model} calls {interface.network}, which is not ready at {self.address.netloc}{self._ready()}"
            )
        for model in (interface.model, interface.network):
            found = self._json("get_inference_statistics", model).get("model_stats", [])
            stats = [entry.get("inference_stats", {}) for entry in found]
            totals[model] = {s: sum(int(e.get(s, {}).get("ns", 0)) for e in stats) for s in STAGES}
            totals[model]["count"] = sum(int(e.get("success", {}).get("count", 0)) for e in stats)
        return totals


def since(before: dict, after: dict) -> dict[str, dict[str, float]]:
    """Mean milliseconds of each stage between two totals, for each model."""
    means = {}
    for model, stages in after.items():
        count = max(1, stages["count"] - before[model]["count"])
        means[model] = {s: (stages[s] - before[model][s]) / 1e6 / count for s in STAGES}
    return means
