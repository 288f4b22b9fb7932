"""Runs of the notebooks: what to run, each in its own process, judged, kept.

``catalog`` finds and reads notebooks, ``planning`` says what is to run, with what and how long,
``folder`` takes the results; ``execute`` runs one notebook through papermill in a child process,
``run`` is the run as a whole, ``progress`` shows it, ``results`` judges and keeps it. ``beside``
watches the files beside a notebook, ``hidden`` keeps secrets out, ``shares`` gives each its devices
or threads, ``machine`` tells where it ran. ``page`` and ``junit`` write the results for people and
for CI, ``moved`` compares two of them.
"""
