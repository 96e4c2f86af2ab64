"""Looks at a machine and says whether a node can work there: one file for each family of checks.

Rules
1. Reading and judging are apart: `judge_*` functions are pure, `look_*` functions read and call them.
2. A check that can stop the node is `required`. The node's own start runs the same checks, so there is no second list.
3. Looking changes nothing that lasts.
"""
