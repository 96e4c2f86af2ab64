"""Print the lengths of sealed texts: `python framing.py MODULE LENGTH...` with the sealing module of an SDK."""

import importlib
import json
import sys

seal = importlib.import_module(sys.argv[1]).get_encrypted_commitment
json.dump([len(seal("x" * int(length), 1, 12.0)[0]) for length in sys.argv[2:]], sys.stdout)
