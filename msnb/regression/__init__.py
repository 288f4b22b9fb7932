"""Runs of the notebooks: what to run, each in its own process, judged, kept.

``catalog`` finds and reads notebooks, ``execute`` runs one through papermill in a child process,
``run`` is the run as a whole, ``progress`` shows it, ``results`` judges and keeps it.
"""
