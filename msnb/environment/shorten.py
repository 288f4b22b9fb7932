"""The same table on every machine: paths of this one replaced by what they stand for."""

from __future__ import annotations

import re
from dataclasses import replace

from msnb.environment.facts import Facts
from msnb.report import Check


def checks(rows: list[Check], facts: Facts) -> list[Check]:
    """``rows`` with short paths; an ok row keeps only its summary, which holds no machine's detail.

    ``<env>`` is the environment, paths below the repository are relative to it, ``~`` is the home
    folder. A remedy stays what one can type: only ``.venv/bin/python`` is written for the
    interpreter, where that is the same one and the repository is where it is typed.
    """
    return [
        replace(
            row,
            summary=shorter(row.summary, facts),
            found="" if row else shorter(row.found, facts),
            expected=shorter(row.expected, facts),
            remedy=_remedy(row.remedy, facts),
        )
        for row in rows
    ]


def shorter(text: str, facts: Facts) -> str:
    """``text`` with the paths of this machine replaced."""
    python, places = facts["python"], facts["places"]
    prefix = None if python["kind"] == "system" else python["prefix"]  # half the machine is in /usr
    labels = {}
    for path, label in (
        (places["home"], "~"),
        (places["repo"], ""),
        (prefix, "<env>"),
        (facts[".venv"] and _is_ours(facts) and facts[".venv"]["path"], "<env>"),
    ):
        for form in (path, python["real_prefix"]) if label == "<env>" and path else (path,):
            if form and len(form) > 1:
                labels[form] = label
    for path in sorted(labels, key=len, reverse=True):
        text = _replace(text, path, labels[path])
    return text


def _replace(text: str, path: str, label: str) -> str:
    inside = f"{label}/" if label else ""
    text = re.sub(re.escape(path) + "/", lambda _: inside, text)
    return re.sub(re.escape(path) + r"(?![\w.-])", lambda _: label or ".", text)


def _is_ours(facts: Facts) -> bool:
    return bool(facts[".venv"]["prefix"] == facts["python"]["real_prefix"])


def _remedy(text: str, facts: Facts) -> str:
    places, venv = facts["places"], facts[".venv"]
    typed_in_repository = facts["in_kernel"] or places["cwd"] == places["repo"]
    if not (venv and _is_ours(facts) and typed_in_repository):
        return text
    for folder in (venv["path"], facts["python"]["prefix"]):
        text = re.sub(f"'?{re.escape(folder)}/(bin/[\\w.-]+)'?", r".venv/\1", text)
    return text
