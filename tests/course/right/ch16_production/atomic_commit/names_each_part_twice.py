def put(disk, name, data):
    """Writes a file that is whole when it has its name."""
    disk.write(f"{name}.tmp", data)
    disk.fsync(f"{name}.tmp")
    disk.rename(f"{name}.tmp", name)
    disk.fsync_folder()


def atomic_commit(disk, step, part, old, rank, barrier):
    """Each rank forces its own names; the pointer is put as a part is."""
    put(disk, f"step-{step}/rank{rank}", part)
    barrier()
    if not rank:
        put(disk, "latest", f"{step}".encode())
    barrier()
    if isinstance(old, int):
        disk.remove(f"step-{old}/rank{rank}")
        disk.fsync_folder()
