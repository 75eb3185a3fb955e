"""What every test needs: one thread, and no warning about it."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
