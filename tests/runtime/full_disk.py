"""A call log that cannot be written: on a full device, say."""

LINE = "the record of rank 1 is incomplete: No space left on device"


def full_disk():
    """This rank's log is on a full device from now on."""
    import os

    from dtlearn.runtime.recording.python_calls import PYTHON_CALLS

    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, PYTHON_CALLS.log._file._descriptor)
    os.close(full)
