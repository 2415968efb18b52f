"""The device of a run."""
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    import torch


def pick_device(name: str | None) -> 'torch.device':
    """The device called ``name``; without a name, what mmengine finds.

    Raises:
        UserError: no device has that name, or there is none of the kind here.
    """
    import torch
    from mmengine.device import get_device
    try:
        device = torch.device(name or get_device())
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'--device {name} cannot be used here: {reason}') from error
    return device
