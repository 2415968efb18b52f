"""Select the device of a run."""
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    import torch


def pick_device(name: str | None) -> 'torch.device':
    """Return the device ``name``, or by default the one that mmengine selects.

    Raises:
        UserError: the name is invalid, or the device is not available.
    """
    import torch
    from mmengine.device import get_device
    try:
        device = torch.device(name or get_device())
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'--device {name} cannot be used: {reason}') from error
    return device
