"""The pool: a parent that never runs user code, and children that may die.

``supervisor`` watches pipes, signals and deadlines and does no blocking I/O; the threads of
``store_threads`` talk to the store; ``forkserver`` forks; ``child`` runs jobs.
"""
