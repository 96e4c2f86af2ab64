"""The durable store of the node."""
