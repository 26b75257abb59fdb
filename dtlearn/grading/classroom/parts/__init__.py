"""A class in parts, for what one machine cannot grade: `split` says which hand-ins are whose, `record` what a part left
when it was done, and whether several of them are one class; `merge` takes their verdicts together.
"""
