"""The pool: a parent that never runs user code, and children that may die.

``supervisor`` watches pipes, signals and deadlines and does no blocking I/O; ``stores``
talks to the store in a thread beside it; ``forkserver`` forks; ``child`` runs jobs.
"""
