"""A local Substrate JSON-RPC node that serves the real Subtensor runtime metadata.

Invariants
1. The unmodified SDK talks to it: keys, storage layout, extrinsics, events and runtime calls are real SCALE.
2. It binds loopback addresses only and is for development and tests; nothing here holds value.
3. A block is durable (when a state file is given) before anyone hears of it, and only finalized blocks are ever
   announced as finalized.
4. Nothing is imported here: `chain.devnet.beacon` must stay importable without starting anything heavy.
"""
