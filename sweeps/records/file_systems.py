"""File systems of this machine, by the names that the kernel gives them."""

from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = (
    "nfs", "nfs4", "lustre", "beegfs", "gpfs", "cifs", "ceph", "fuse.sshfs", "9p", "wekafs",
    "virtiofs",
)  # fmt: skip
VOLATILE_FILE_SYSTEMS = ("tmpfs", "ramfs")


def file_system(path: Path) -> str:
    """Type of the file system of a path, as Linux names it; "unknown" elsewhere."""
    if not MOUNTS.exists():
        return "unknown"
    kind = "unknown"
    longest = -1
    resolved = path.resolve()
    for line in MOUNTS.read_text().splitlines():
        _, point, name, *_ = line.split(" ")
        # The kernel writes a space in a path as \040.
        mounted = point.replace("\\040", " ")
        # The longest mount point is the innermost. Of two mounts at one point, the later one hides
        # the other.
        if resolved.is_relative_to(mounted) and len(mounted) >= longest:
            kind = name
            longest = len(mounted)
    return kind
