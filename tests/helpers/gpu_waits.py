"""Whether a call waits for the GPU, as reading a number from it does."""

from collections.abc import Callable

import pytest
import torch


def assert_no_wait(call: Callable[[], object]) -> None:
    """Fail if a call waits for the GPU, or if waiting would go unnoticed.

    The call runs once before, because a kernel's first launch compiles it.
    """
    call()
    one = torch.ones((), device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
        with pytest.raises(RuntimeError, match="synchroniz"):
            one.item()
    finally:
        torch.cuda.set_sync_debug_mode(before)
