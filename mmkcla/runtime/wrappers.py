"""What wraps the model and its optimizers."""
from typing import Any

import torch
from mmengine.model import BaseTTAModel, is_model_wrapper


def inner_model(model: torch.nn.Module) -> torch.nn.Module:
    """Unwrap DDP and test-time augmentation; a checkpoint uses the names of the inner model."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def is_several(optim_wrapper: Any) -> bool:
    """Whether this is an ``OptimWrapperDict``."""
    return hasattr(optim_wrapper, 'optim_wrappers')


def optim_wrappers(optim_wrapper: Any) -> dict[str, Any]:
    """Return the wrapper of each optimizer by name; '' is the name of the only one."""
    return dict(optim_wrapper.optim_wrappers) if is_several(optim_wrapper) else {'': optim_wrapper}


def between_steps(optim_wrapper: Any) -> bool:
    """Whether gradients are accumulated that no step of an optimizer has used yet."""
    return any(not one.should_update() for one in optim_wrappers(optim_wrapper).values()
               if hasattr(one, 'should_update'))
