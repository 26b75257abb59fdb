def atomic_commit(disk, step, part, old, rank, barrier):
    """What else lies there is read by nobody, also in the step's own folder."""
    name, last = f"step-{step}/rank{rank}", f"step-{old}/rank{rank}"
    disk.write(f"{name}.bak", part)
    disk.write(name, part)
    disk.fsync(name)
    disk.fsync_folder()
    barrier()
    if rank == 0:
        disk.write("pointer", str(step).encode())
        disk.fsync("pointer")
        disk.rename("pointer", "latest")
    barrier()
    disk.fsync_folder()
    if old is not None:
        disk.rename(last, f"going{rank}")
        disk.remove(f"going{rank}")
