"""The node's read-only HTTP pages.

Invariants
1. Nothing here writes: pages read the store through connections of their own that cannot write, beside the node's
   writer, and files by digest.
2. Only what is public anyway is served: what stands on the chain, verdicts, and signed documents. No path of this
   machine, no message about it, no seed and no shape of an attempt that is not over.
3. Every answer is bounded in size and time, and is the envelope of the command line (`node.envelope`), errors too.
"""
