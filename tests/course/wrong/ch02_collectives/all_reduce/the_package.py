# expect: DTL-RULE-NAME
# says: line 4 uses dtlearn.collectives.all_reduce: it is the course's own answer

from dtlearn.collectives import all_reduce  # noqa: F401
