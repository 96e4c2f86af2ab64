"""Direct-artifact rows: declarations of sealed device code and of how the validator launches it.

Public entries: `row.parse_direct_row`, `identity.direct_identity`, `evaluate.evaluate`, `launch.geometry`.
"""
