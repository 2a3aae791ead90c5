"""The demonstration: one CT volume through a running server, and back into the scan's own geometry.

A demonstration on synthetic data, not for clinical use. Started by scripts/demo.sh; needs no torch.
"""

NOTICE = "Demonstration network, trained on synthetic data. Not for clinical use."


class DemoError(Exception):
    """What stops the demonstration, as one line for the person in front of it."""
