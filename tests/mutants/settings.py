"""A site without django_jobs: what is mutated needs settings, but no apps and no database."""

SECRET_KEY = "only-for-mutants-and-never-for-a-real-site"
USE_TZ = True
