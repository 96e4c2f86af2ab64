"""What the calls of the runtime do, one file per pallet.

Invariants
1. A handler reads its arguments from the raw call bytes, in the order of the metadata, and nothing else.
2. A handler changes state only through its `Context`; when it raises `DispatchError` its changes are undone.
"""
