"""The device targets and how they are spelt.

Standard library only, and nothing of ours: the doctor needs it in an environment in which
everything else is broken.
"""

from __future__ import annotations

TARGETS = ("CPU", "Ascend", "GPU", "auto")

_NICKNAMES = {"npu": "Ascend", "davinci": "Ascend", "cuda": "GPU", "nvidia": "GPU"}


def canonical_target(asked: object) -> str:
    """``CPU``, ``Ascend``, ``GPU`` or ``auto`` for ``asked`` in any case.

    Raises ``TypeError`` for what is no text, and ``ValueError``, with the nearest target, for any
    other word.

    >>> canonical_target(" ascend")
    'Ascend'
    """
    known = f"device_target is one of {', '.join(TARGETS)}"
    if not isinstance(asked, str):
        raise TypeError(f"{known}, not {asked!r}")
    spelt = {target.lower(): target for target in TARGETS}
    word = asked.strip().lower()
    if word in spelt:
        return spelt[word]
    from difflib import get_close_matches

    near = _NICKNAMES.get(word) or next(
        (spelt[name] for name in get_close_matches(word, spelt, n=1, cutoff=0.5)), ""
    )
    raise ValueError(f"{known}, not {asked!r}{near and f'; did you mean {near}?'}")
