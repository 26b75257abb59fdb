"""The ten programs of the bug-hunt lab, a file each, with `main`, which every rank runs.

Each has one fault, of a kind that a public project had and fixed; nothing of their code is here. Do not mend them.
"""
