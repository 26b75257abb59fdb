"""dtlearn.viz draws from data: it needs neither pyplot nor torch.distributed."""

import subprocess
import sys

CODE = """
import sys
from dtlearn.viz import *
print([m for m in ("matplotlib.pyplot", "torch.distributed", "ipywidgets", "IPython") if m in sys.modules])
"""


def test_import_brings_neither_pyplot_nor_torch():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
