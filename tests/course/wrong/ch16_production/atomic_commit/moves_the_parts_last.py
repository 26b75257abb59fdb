# expect: DTL-DIFFICULTY
# says: until all of the new checkpoint is there, latest names the old one. A rename is one moment


def atomic_commit(disk, step, part, old, rank, barrier):
    """Prepares everything under other names, and gives the parts theirs after latest."""
    names = {f"new-{step}-{rank}": f"step-{step}/rank{rank}"}
    disk.write(f"new-{step}-{rank}", part)
    if rank == 0:
        disk.write("new-latest", str(step).encode())
        names = {"new-latest": "latest", **names}
    for name in names:
        disk.fsync(name)
    disk.fsync_folder()
    barrier()
    for name, final in names.items():
        disk.rename(name, final)
    disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
