"""Ranks: start them, give them a group and a device, record what they say, end them.

Ask first in which process a line runs. There is a folder for each process, and one for each kind of data:

    head (notebook, grader, script)                  run  launch  world/        judges with  watch/
      |  starts, hears                               agent/client, start, collector
      v
    agent, one per machine, torch loaded             agent/server, reaper, forked_ranks
      |  forks
      v
    rank                                             rank/   writes with  recording/   is slowed by  link/
      |  leaves behind
      v
    call log, phases, stacks                         record/  (data)     faults/  (what can be wrong, as data)

    another machine: the same agent and ranks, reached through  lab/
    any process: machine/ (this computer), wire, pickles, words, errors, device, output

Each folder says in its `__init__.py` in which order to read it. A file imports from its own folder, and
what stands before it here: words, record, faults, errors, machine, device (output, wire, pickles), watch, recording,
link, rank, agent, run, launch (rendezvous), world, lab.

What notebooks use has its names in `dtlearn`; all others import from the files themselves.
"""
