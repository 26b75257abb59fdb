# expect: DTL-DIFFICULTY
# says: latest moves when the parts of all ranks are there


def atomic_commit(disk, step, part, old, rank, barrier):
    """Rank 0 commits in a finally, also after its barrier has said that a rank is dead."""
    try:
        disk.write(f"step-{step}/rank{rank}", part)
        disk.fsync(f"step-{step}/rank{rank}")
        barrier()
    finally:
        if rank == 0:
            disk.fsync_folder()
            disk.write("new pointer", str(step).encode())
            disk.fsync("new pointer")
            disk.rename("new pointer", "latest")
            disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
