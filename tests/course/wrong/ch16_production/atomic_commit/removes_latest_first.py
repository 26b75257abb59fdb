# expect: DTL-DIFFICULTY
# says: there is no latest


def atomic_commit(disk, step, part, old, rank, barrier):
    """Makes room for the new name, which a rename does itself."""
    disk.write(f"step-{step}/rank{rank}", part)
    disk.fsync(f"step-{step}/rank{rank}")
    barrier()
    if rank == 0:
        disk.write("latest.tmp", b"%d" % step)
        disk.fsync("latest.tmp")
        disk.fsync_folder()
        disk.remove("latest")
        disk.rename("latest.tmp", "latest")
        disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
