# expect: DTL-RULE-NAME
# says: the course's own answer

from dtlearn.tensor_parallel import vocabulary_parallel_cross_entropy


def sharded_cross_entropy(logits, targets, group=None):
    return vocabulary_parallel_cross_entropy(logits, targets, group=group)
