"""The whole way of a job, shown with a real worker and the real admin: ``make demo``."""
