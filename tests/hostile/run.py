"""Print the hostile corpus as a table: `python -m tests.hostile.run [NAME ...]`.

Exit status 1 when a cheat succeeded or ended in another way than expected.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from qualify.referee import PRELOAD
from qualify.sandbox.client import Zygote
from tests.hostile.corpus import NAMES, run_row
from tests.qualify.support import write_arena


def main(names: list[str]) -> int:
    """Run the rows called `names`, or all, and print one line each."""
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch, Zygote.start(preload=PRELOAD) as fork_server:
        arena = write_arena(Path(scratch), deadline_ms=500, memory=1 << 30)
        for name in names or NAMES:
            result = run_row(name, arena, Path(scratch), fork_server)
            seen[result.status] += 1
            print(f"{name:28} row {result.row:8} {result.status:16} {result.code:20} {result.detail[:70]}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(seen.items())))
    return 1 if seen["cheat succeeded"] or seen["incomplete"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
