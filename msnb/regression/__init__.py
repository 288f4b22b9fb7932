"""Runs of the notebooks: what to run, each in its own process, judged, kept.

``catalog`` finds and reads notebooks, ``planning`` says what is to run, with what and how long,
``folder`` takes the results; ``run`` is the run as a whole, ``execute`` runs one notebook through
papermill in a process of its own, ``warm`` forks processes and kernels from one that has imported
the frameworks, ``progress`` shows it, ``results`` judges and keeps it. ``beside`` watches the files
beside a notebook, ``hidden`` keeps secrets out, ``shares`` gives each its devices or threads,
``machine`` tells where it ran, ``overlay`` brings another version of MindSpore. ``page`` and
``junit`` write the results for people and for CI, ``moved`` compares two of them, ``baseline`` says
how far each number may move, ``upgrade`` what to do about what moved, ``matrix`` what passed where,
with the nets in ``models``.
"""
