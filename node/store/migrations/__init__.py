"""Schema migrations, run by `node.store.migrate`."""
