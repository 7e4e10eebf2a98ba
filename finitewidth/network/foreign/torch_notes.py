"""What is passed over when a torch module is read: wrappers, dropout, learned slopes, frozen parameters."""

from collections.abc import Sequence

from torch import nn


def notes_of(
    module: nn.Module, wrapper: str | None, dropout: Sequence[str], slopes: Sequence[str] = ()
) -> tuple[str, ...]:
    """One sentence for each kind; `dropout` and `slopes` are names of operations."""
    frozen = [name for name, one in module.named_parameters() if not one.requires_grad]
    notes = [] if wrapper is None else [f"{wrapper} was unwrapped"]
    if dropout:
        notes.append(f"dropout ({_listed(dropout)}) counts as in evaluation, where it does nothing")
    if slopes:
        notes.append(
            f"PReLU ({_listed(slopes)}) counts with the slope that it has; its own learning is not in the "
            "theory"
        )
    if frozen:
        verbs = ("is", "stays") if len(frozen) == 1 else ("are", "stay")
        notes.append(f"parameter {_listed(frozen)} {verbs[0]} frozen (requires_grad=False) and {verbs[1]} so")
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    return repr(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
