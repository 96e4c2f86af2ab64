"""Start the node: `python -m chain.devnet --help`."""

from __future__ import annotations

import sys

from chain.devnet.command import main

if __name__ == "__main__":
    sys.exit(main())
