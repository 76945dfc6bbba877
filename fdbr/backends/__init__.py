"""Back ends: what runs operations and programs."""

import numpy as np

from fdbr.core import loading

loading.announce(np, "fdbr.backends.cpu.library.registered", "fdbr.backends.cpu.backend")
loading.announce("cuda", "fdbr.backends.cuda.registered")
