"""Conventions between the process of a run and its launcher: exit status, log lines, threads."""

# As in shells and sysexits.h: 2 wrong command, 75 try again later, 130 Ctrl-C.
EXIT_DONE, EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_BUSY, EXIT_INTERRUPTED = 0, 1, 2, 75, 130

# Exit status of a sweep without failures in which some runs were cancelled or belong to another
# process.
EXIT_ELSEWHERE = 3
# In the reason of an end, before that of a refused resume.
NOT_RESUMED = "not resumed: "
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def thread_environment(threads: int) -> dict[str, str]:
    """Environment variables that limit BLAS, OpenMP and torch to a number of threads.

    The libraries read them on import.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    # PASSIVE: waiting threads sleep. Spinning threads slow a busy machine down a hundredfold.
    return {**dict.fromkeys(names, str(threads)), "OMP_WAIT_POLICY": "PASSIVE"}
