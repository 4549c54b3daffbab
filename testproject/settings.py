"""Settings of the test project. Nothing in here is fit for production."""

import os
from pathlib import Path

import django

from testproject.databases import databases

BASE_DIR = Path(__file__).resolve().parent

SECRET_KEY = "only-for-the-test-project-and-never-for-a-real-site"
DEBUG = os.environ.get("DJANGO_JOBS_DEBUG") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobs",
    "testproject.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "testproject.strict.content_security_policy",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

TASKS = {
    "default": {"BACKEND": "django_jobs.tasks.JobsBackend", "QUEUES": []},
    "reports": {"BACKEND": "django_jobs.tasks.JobsBackend", "QUEUES": ["reports"]},
}

ROOT_URLCONF = "testproject.urls"
STATIC_URL = "static/"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
else:
    EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast, and only for tests

USE_TZ = True
TIME_ZONE = "Europe/Vienna"  # not UTC, so that a mix-up of the two shows
LANGUAGE_CODE = "en-us"

DATABASES = databases(os.environ.get("DJANGO_JOBS_TEST_DB") or "sqlite")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
