"""The stable codes of what can go wrong with ranks: what each means, and what to look for.

Exercises, tests and class summaries count these codes; every error of `dtlearn.runtime.errors` carries one.
"""

# Code -> (why this goes wrong, on gloo and on NCCL; one hint).
ADVICE = {
    "DTL-COLL-SKIP": (
        "Every rank of a group must make the same collective calls. The others wait in theirs: with gloo until the "
        "group's time-out (30 minutes unless set), with NCCL until its watchdog ends the processes (10 minutes).",
        "Look for an `if` or an early `return` around the call that depends on the rank or on its data.",
    ),
    "DTL-COLL-ORDER": (
        "Collectives are paired by their order, not by their name. With gloo both wait; NCCL may hang or mix data.",
        "Make the calls in the same order on every rank.",
    ),
    "DTL-COLL-SHAPE": (
        "The ranks handed in different numbers of elements. gloo aborts a process or returns wrong numbers, silently; "
        "NCCL hangs or reads beyond the end.",
        "Print the shape on every rank just before the call. Uneven shards have to be padded; where a rank has left a "
        "call out, all its later calls meet those of another turn.",
    ),
    "DTL-COLL-SPLITS": (
        "What one rank sends to another must be what that one expects from it. gloo aborts a process that gets more, "
        "and fills a larger tensor in part, silently; NCCL hangs or reads beyond the end.",
        "Let the ranks exchange their input_split_sizes first (an all_to_all_single of the counts): what arrives are "
        "the output_split_sizes.",
    ),
    "DTL-COLL-DTYPE": (
        "The ranks handed in tensors of different types. Neither gloo nor NCCL compares them: equal sizes are silently "
        "read as the wrong type.",
        "Convert to one dtype before the call.",
    ),
    "DTL-COLL-ROOT": (
        "The ranks named different roots. With gloo each waits for another rank to send; NCCL does not compare roots "
        "either, and may hang or deliver wrong data.",
        "Use the same src or dst on every rank; it is a global rank.",
    ),
    "DTL-COLL-OP": (
        "The ranks asked for different reductions. Nothing fails, with gloo or with NCCL: the numbers are wrong.",
        "Use the same ReduceOp on every rank.",
    ),
    "DTL-COLL-GROUPS": (
        "The ranks wait for each other in calls on different groups. gloo waits in each call; NCCL hangs likewise when "
        "the calls have to wait for each other on the GPU.",
        "Order the groups: every rank that is in both must use them in the same order.",
    ),
    "DTL-P2P-CYCLE": (
        "Each of these ranks waits for the next one to take the other half. With gloo a send blocks until it "
        "is received; NCCL may let small ones pass and then hang on large ones.",
        "Count the sends and receives of each pair: is a receive missing? If none is, one of the two has to receive "
        "while the other sends; or both send with isend, and wait() after the recv (with NCCL: batch_isend_irecv, "
        "which starts both ends at once).",
    ),
    "DTL-P2P-NO-SEND": (
        "Each of these ranks waits in a receive, with gloo and with NCCL alike. No order of the receives can repair "
        "that: what each waits for is sent by nobody, or only after the sender has received something itself.",
        "For each receive find the send that it waits for: it is missing, or stands behind a receive of its own rank.",
    ),
    "DTL-P2P-DTYPE": (
        "The two ends of a message have different dtypes of the same size. Neither gloo nor NCCL compares them: the "
        "bytes are read as the wrong type, silently.",
        "Receive into a tensor of the sender's dtype, and convert afterwards.",
    ),
    "DTL-CANNOT-TELL": (
        "The ranks do not go on, and what their logs hold is not enough to say why.",
        "Compare the last calls of the ranks above: which of them lacks its counterpart?",
    ),
    "DTL-P2P-TAG": (
        "With gloo a send and a recv pair up only if both use the same tag. NCCL ignores tags and pairs them in order.",
        "Use the same tag at both ends.",
    ),
    "DTL-P2P-SIZE": (
        "The two ends of a message must have the same size. gloo aborts a process that gets more than it has room for, "
        "and fills a larger tensor in part, silently; NCCL hangs or reads beyond the end.",
        "Print shape and dtype at both ends just before the call. Often the receiver's buffer is like a piece of its "
        "own (torch.empty_like of it), and not like the piece that arrives.",
    ),
    "DTL-P2P-UNMATCHED": (
        "A send and a recv pair up only if each names the other rank and both use the same group. With gloo and with "
        "NCCL the half that is alone waits.",
        "Compare the peers below and above: who sends to whom, and who receives from whom?",
    ),
    "DTL-ASYNC-WAIT": (
        "A call with async_op=True, an isend or an irecv returns before its work is done. With gloo the tensor changes "
        "at any time until wait() returns; with NCCL at any time until the GPU's stream has waited.",
        "Keep the Work that the call returns, and call wait() on it, or on its get_future(), before the tensor is used "
        "or changed.",
    ),
    "DTL-INIT": (
        "A group comes into being when all of its ranks have called; with gloo and with NCCL the others wait for the "
        "missing one in the store.",
        "Make the same groups and meshes on every rank, in the same order and of the same size, and see what keeps one "
        "from it.",
    ),
    "DTL-RAISED": ("A rank raised an exception.", "Its traceback names the line."),
    "DTL-RANK-EXIT": (
        "A rank ended before its work was done, whatever its exit code says.",
        "Something ended the process early (sys.exit, os._exit): a rank has to return from the function.",
    ),
    "DTL-RANK-KILLED": (
        "A signal ended the process of a rank.",
        "SIGKILL usually means too little memory; other signals are crashes in native code.",
    ),
    "DTL-RANK-LOST": (
        "Ranks lost their connection to another one, and nothing tells why.",
        "Look at what the ranks printed; a peer may have ended, or a message did not fit.",
    ),
    "DTL-RANK-STOPPED": (
        "A process that was stopped (SIGSTOP, Ctrl-Z, a debugger) runs nothing, and the others wait for it.",
        "SIGCONT lets it go on: `kill -CONT` and its process id.",
    ),
    "DTL-OOM": ("There was not enough memory.", "Use fewer ranks, a smaller model, or a smaller batch."),
    "DTL-LOOP": (
        "Whoever needs this rank in a call waits for as long as this goes on: with gloo until the group's time-out (30 "
        "minutes unless set), with NCCL until its watchdog ends the processes (10 minutes).",
        "Can the condition of that loop ever become false on this rank?",
    ),
    "DTL-STRAGGLER": (
        "A collective takes as long as its last rank: with gloo and with NCCL the others wait until that one comes, or "
        "until the group's time-out.",
        "Give every rank the same amount of work, or raise the time limit if it needs that long.",
    ),
    "DTL-TIMEOUT": (
        "The time limit passed, and what the ranks show is not enough to tell why.",
        "Raise the time limit, or look at the lines above.",
    ),
    "DTL-INTERRUPTED": ("The cell was interrupted.", "Ranks that were stuck were freed."),
    "DTL-LAUNCH": ("The ranks could not be started.", "`dtlearn doctor` checks what they need."),
    "DTL-NOT-SENDABLE": (
        "A value cannot travel between the notebook and the ranks.",
        "Make it on the ranks instead, or send plain data.",
    ),
    "DTL-USE": ("The ranks cannot do what was asked now.", "The message says what to do first."),
}
