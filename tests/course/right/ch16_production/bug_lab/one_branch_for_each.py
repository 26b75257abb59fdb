def bug_lab(program):
    """The other lines that may change, and tuples of ranks."""
    match program:
        case "sharded_save":
            ranks, line, cause = (2, 1), 22, "rank decides"
        case "detector_logs":
            ranks, line, cause = (2,), 13, "data decide"
        case "codebook":
            ranks, line, cause = (0, 1), 14, "a copy"
        case "cache_groups":
            ranks, line, cause = tuple(range(4)), 11, "groups"
        case "loss_log":
            ranks, line, cause = (0, 1), 18, "too often"
        case "checkpoint_thread":
            ranks, line, cause = (1, 0), 26, "changed meanwhile"
        case "pipeline_pairs":
            ranks, line, cause = (2, 3), 15, "wrong peer"
        case "collected_scores":
            ranks, line, cause = (0,), 22, "not waited for"
        case "loss_metric":
            ranks, line, cause = (3, 2, 1, 0), 14, "too much"
        case _:
            ranks, line, cause = (1, 2), 20, "one for all"
    return dict(ranks=ranks, line=line, cause=cause)
