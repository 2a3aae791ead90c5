"""How much is measured: all of it, or what fits into five minutes."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1000  # slices of the largest volume, 1 GB; only this backend gets it

@dataclass(frozen=True)
class Settings:
    first_requests: int  # to each new server
    compared: tuple[str, ...]  # inputs whose answers are compared before timing
    rounds: int  # of the headline tables; each is one run of every stack over every transport
    requests: int  # in each of those runs; Triton's statistics leave the first of several out
    whole_stack_transports: tuple[str, ...]  # over which the stack with the network in Python too is measured
    phantom_rounds: int
    noise_rounds: int
    growth: tuple[int, ...]  # slices
    growth_rounds: int
    soak_requests: int
    load_repeats: int
    load_rounds: int  # of concurrent clients
    load_requests: int
    python_under_load: bool
    deadline_s: float  # sections that would end later are left out


FULL = Settings(
    first_requests=3,
    compared=("zero", "phantom"),
    rounds=4,
    requests=3,
    whole_stack_transports=("shm", "http", "grpc"),
    phantom_rounds=3,
    noise_rounds=3,
    growth=(64, 114, 300, 600),
    growth_rounds=3,
    soak_requests=500,
    load_repeats=3,
    load_rounds=2,
    load_requests=8,
    python_under_load=True,
    deadline_s=float("inf"),
)
QUICK = Settings(
    first_requests=2,
    compared=("phantom",),
    rounds=2,
    requests=2,
    whole_stack_transports=("shm",),
    phantom_rounds=0,
    noise_rounds=2,
    growth=(64, 114, 300),
    growth_rounds=1,
    soak_requests=60,
    load_repeats=1,
    load_rounds=1,
    load_requests=6,
    python_under_load=False,
    deadline_s=285.0,
)
