"""What the NVIDIA driver tells of this machine."""

import subprocess

TIMEOUT_S = 20


def installed_gpus() -> list[tuple[str, float]]:
    """Name and total memory (GiB) of each GPU."""
    rows = [line.rsplit(",", 1) for line in ask("name,memory.total") if "," in line]
    return [(name.strip(), float(mib) / 1024) for name, mib in rows]


def driver_version() -> str | None:
    """For example 580.65.06; None: there is no driver."""
    lines = ask("driver_version")
    return lines[0].strip() if lines else None


def ask(fields: str) -> list[str]:
    """A line for each GPU; none where there is no driver, or where it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
