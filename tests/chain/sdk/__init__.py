"""Other SDKs than the pinned one, each in an interpreter of its own, against a devnet."""
