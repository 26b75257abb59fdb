# expect: DTL-MISTAKE
# says: the bytes of the file that becomes latest are not forced


def atomic_commit(disk, step, part, old, rank, barrier):
    """Takes fsync of the folder to force the files that are in it."""
    own = f"step-{step}/rank{rank}"
    disk.write(f"{own}.new", part)
    disk.rename(f"{own}.new", own)
    disk.fsync_folder()
    barrier()
    if rank == 0:
        disk.write("latest.new", str(step).encode())
        disk.fsync_folder()
        disk.rename("latest.new", "latest")
        disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
    disk.fsync_folder()
