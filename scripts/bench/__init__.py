"""The benchmark: stock Triton with this backend and with the Python backend, measured in turn. Run it with scripts/bench.sh."""
