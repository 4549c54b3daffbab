"""What probes and scrapers ask for, to be included by a site: ``django_jobs.urls``."""
