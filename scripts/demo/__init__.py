"""The demonstration: one CT volume through a running server, and back into the scan's own geometry.

A demonstration on synthetic data, not for clinical use. Started by scripts/demo.sh; the work is spleen_client's.
"""

NOTICE = "Demonstration network, trained on synthetic data. Not for clinical use."
