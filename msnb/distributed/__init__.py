"""Data parallel training: launch it, watch it, check it across its ranks."""
