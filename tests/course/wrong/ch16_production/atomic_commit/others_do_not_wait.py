# expect: DTL-RAISED
# says: call it equally often on all ranks


def atomic_commit(disk, step, part, old, rank, barrier):
    """The other ranks are done after their part, and rank 0 waits for them a second time."""
    disk.write(f"step-{step}/rank{rank}", part)
    disk.fsync(f"step-{step}/rank{rank}")
    barrier()
    if rank > 0:
        return
    disk.fsync_folder()
    disk.write("latest.tmp", str(step).encode())
    disk.fsync("latest.tmp")
    disk.rename("latest.tmp", "latest")
    disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
