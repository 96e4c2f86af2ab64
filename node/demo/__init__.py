"""The demo: the whole system at work on one machine, on real parts.

Everything here can be killed at any moment and started again on the same state folder: each step first looks at what
is already done, on the chain, in the node's store or on disk. Nothing here prints; progress goes to a `Reporter`.
"""
