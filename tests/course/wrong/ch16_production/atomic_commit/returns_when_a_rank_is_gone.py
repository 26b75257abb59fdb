# expect: DTL-MISTAKE
# says: which is caught: let it through


def atomic_commit(disk, step, part, old, rank, barrier):
    """Its caller takes the step for saved."""
    disk.write(f"step-{step}/rank{rank}", part)
    disk.fsync(f"step-{step}/rank{rank}")
    try:
        barrier()
    except Exception:
        return
    if rank == 0:
        disk.fsync_folder()
        disk.write("latest.new", b"%d" % step)
        disk.fsync("latest.new")
        disk.rename("latest.new", "latest")
        disk.fsync_folder()
    try:
        barrier()
    except Exception:
        return
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
