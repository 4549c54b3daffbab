"""The first tables, with the columns and tables that later capabilities need."""

from django.db import migrations, models

import django_jobs.models.indexes


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AdminSchedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("expression", models.CharField(max_length=255)),
                ("timezone", models.CharField(db_default="UTC", default="UTC", max_length=64)),
                ("handler", models.CharField(max_length=255)),
                ("payload", models.JSONField(blank=True, null=True)),
                ("queue", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("priority", models.SmallIntegerField(db_default=0, default=0)),
                ("max_retries", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("timeout", models.FloatField(blank=True, null=True)),
                ("enabled", models.BooleanField(db_default=True, default=True)),
                ("missed", models.CharField(db_default="latest", default="latest", max_length=16)),
                ("deadline", models.FloatField(blank=True, null=True)),
                ("overlap", models.CharField(db_default="allow", default="allow", max_length=16)),
                (
                    "changed_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("changed_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "schedule of the admin",
                "verbose_name_plural": "schedules of the admin",
            },
        ),
        migrations.CreateModel(
            name="Breaker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=16)),
                ("name", models.CharField(max_length=255)),
                ("failures", models.PositiveIntegerField(db_default=0, default=0)),
                ("opened_at", models.BigIntegerField(blank=True, null=True)),
                ("probe", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("probe_job", models.UUIDField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "circuit breaker",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("backend", "kind", "name"), name="dj_breaker_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="FailedJob",
            fields=[
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("handler", models.CharField(max_length=255)),
                ("name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("rank", models.SmallIntegerField(db_default=0, default=0)),
                ("body", models.TextField()),
                ("signature", models.CharField(max_length=64)),
                ("key_id", models.CharField(max_length=64)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("deliveries", models.IntegerField(db_default=0, default=0)),
                ("crashes", models.IntegerField(db_default=0, default=0)),
                ("trace_id", models.CharField(blank=True, max_length=64, null=True)),
                ("trace_parent", models.CharField(blank=True, max_length=64, null=True)),
                ("tenant", models.CharField(blank=True, max_length=255, null=True)),
                ("schedule", models.CharField(blank=True, max_length=255, null=True)),
                ("tick", models.BigIntegerField(blank=True, null=True)),
                ("replay_of", models.UUIDField(blank=True, null=True)),
                ("meta", models.JSONField(blank=True, null=True)),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.UUIDField()),
                ("reason", models.CharField(max_length=64)),
                (
                    "error_type",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                ("error_message", models.TextField(blank=True, default="")),
                ("traceback", models.TextField(blank=True, default="")),
                ("output", models.TextField(blank=True, default="")),
                (
                    "fingerprint",
                    models.CharField(blank=True, db_default="", default="", max_length=64),
                ),
                ("enqueued_at", models.DateTimeField(blank=True, null=True)),
                ("failed_at", models.DateTimeField()),
                (
                    "resolution",
                    models.CharField(blank=True, db_default="", default="", max_length=16),
                ),
                ("resolution_note", models.TextField(blank=True, default="")),
                (
                    "resolved_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                ("replayed_as", models.UUIDField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "dead letter",
                "permissions": (
                    ("replay_failedjob", "Can replay dead letters"),
                    ("discard_failedjob", "Can discard dead letters"),
                    ("view_payload", "Can view the payload of jobs"),
                    ("edit_payload", "Can edit the arguments of a dead letter before its replay"),
                ),
                "indexes": [
                    models.Index(
                        fields=["failed_at", "id", "queue", "handler", "reason", "fingerprint"],
                        name="dj_failed_when",
                    ),
                    models.Index(fields=["resolution", "failed_at", "id"], name="dj_failed_open"),
                    models.Index(
                        fields=[
                            "resolution",
                            "queue",
                            "failed_at",
                            "id",
                            "handler",
                            "reason",
                            "backend",
                        ],
                        name="dj_failed_queue",
                    ),
                    models.Index(
                        fields=["resolution", "handler", "failed_at", "id", "queue", "reason"],
                        name="dj_failed_handler",
                    ),
                    models.Index(
                        fields=["resolution", "reason", "failed_at", "id", "queue", "handler"],
                        name="dj_failed_reason",
                    ),
                    models.Index(
                        fields=[
                            "resolution",
                            "fingerprint",
                            "failed_at",
                            "id",
                            "queue",
                            "handler",
                            "reason",
                        ],
                        name="dj_failed_group",
                    ),
                    models.Index(fields=["job_id"], name="dj_failed_job"),
                    models.Index(
                        fields=["trace_id"],
                        name="dj_failed_trace",
                        opclasses=("varchar_pattern_ops",),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("backend", "job_id"), name="dj_failed_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="FailureGroup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("fingerprint", models.CharField(max_length=64)),
                ("slot", models.SmallIntegerField()),
                ("handler", models.CharField(max_length=255)),
                ("reason", models.CharField(max_length=64)),
                (
                    "error_type",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                (
                    "error_message",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                ("open", models.BigIntegerField(db_default=0, default=0)),
                ("seen", models.BigIntegerField(db_default=0, default=0)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
            ],
            options={
                "verbose_name": "error group",
                "constraints": [
                    models.UniqueConstraint(fields=("fingerprint", "slot"), name="dj_group_slot")
                ],
            },
        ),
        migrations.CreateModel(
            name="Metric",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("queue", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("part", models.CharField(blank=True, db_default="", default="", max_length=16)),
                ("value", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name", "queue", "part"), name="dj_metric_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("handler", models.CharField(max_length=255)),
                ("name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("rank", models.SmallIntegerField(db_default=0, default=0)),
                ("body", models.TextField()),
                ("signature", models.CharField(max_length=64)),
                ("key_id", models.CharField(max_length=64)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("deliveries", models.IntegerField(db_default=0, default=0)),
                ("crashes", models.IntegerField(db_default=0, default=0)),
                ("trace_id", models.CharField(blank=True, max_length=64, null=True)),
                ("trace_parent", models.CharField(blank=True, max_length=64, null=True)),
                ("tenant", models.CharField(blank=True, max_length=255, null=True)),
                ("schedule", models.CharField(blank=True, max_length=255, null=True)),
                ("tick", models.BigIntegerField(blank=True, null=True)),
                ("replay_of", models.UUIDField(blank=True, null=True)),
                ("meta", models.JSONField(blank=True, null=True)),
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "scheduled"), (1, "ready"), (2, "running"), (3, "blocked")]
                    ),
                ),
                ("due", models.BigIntegerField()),
                ("put_off_since", models.BigIntegerField(blank=True, null=True)),
                ("suspect", models.BooleanField(db_default=False, default=False)),
                ("lease_token", models.CharField(blank=True, max_length=32, null=True)),
                ("lease_expires", models.BigIntegerField(blank=True, null=True)),
                ("worker", models.CharField(blank=True, max_length=128, null=True)),
                ("leased_at", models.BigIntegerField(blank=True, null=True)),
                ("reaped_token", models.CharField(blank=True, max_length=32, null=True)),
                ("reap_charged", models.BooleanField(blank=True, null=True)),
                ("unique_key", models.CharField(blank=True, max_length=64, null=True)),
                ("concurrency_key", models.CharField(blank=True, max_length=64, null=True)),
                ("concurrency", models.IntegerField(blank=True, null=True)),
                ("idempotency_key", models.CharField(blank=True, max_length=64, null=True)),
                ("blocked_by", models.CharField(blank=True, max_length=64, null=True)),
                ("cancel_requested", models.BooleanField(db_default=False, default=False)),
                ("expires", models.BigIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "live job",
                "permissions": (("cancel_job", "Can cancel jobs and ask running ones to stop"),),
                "indexes": [
                    models.Index(
                        fields=["queue", "state", "rank", "due", "id"], name="dj_job_claim"
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["queue", "state", "due", "id"],
                        name="dj_job_promote",
                        where=models.Q(("state", 0)),
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["lease_expires", "suspect", "state"],
                        name="dj_job_reap",
                        whole=("lease_expires", "suspect"),
                        where=models.Q(("state", 2), ("suspect", True), _connector="OR"),
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["concurrency_key", "state"],
                        name="dj_job_concurrency",
                        where=models.Q(("concurrency_key__isnull", False)),
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["idempotency_key", "state"],
                        name="dj_job_idempotency",
                        where=models.Q(("idempotency_key__isnull", False)),
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["blocked_by", "queue", "rank", "due", "id"],
                        name="dj_job_blocked",
                        where=models.Q(("blocked_by__isnull", False)),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("unique_key",), name="dj_job_unique_key")
                ],
            },
        ),
        migrations.CreateModel(
            name="JobAttempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("job_id", models.UUIDField()),
                ("number", models.PositiveIntegerField()),
                ("outcome", models.CharField(max_length=16)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                (
                    "error_type",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                ("error_message", models.TextField(blank=True, default="")),
                ("traceback", models.TextField(blank=True, default="")),
                ("output", models.TextField(blank=True, default="")),
                ("worker", models.CharField(blank=True, db_default="", default="", max_length=128)),
            ],
            options={
                "verbose_name": "attempt",
                "indexes": [
                    models.Index(fields=["job_id", "number"], name="dj_attempt_job"),
                    models.Index(fields=["finished_at"], name="dj_attempt_when"),
                ],
            },
        ),
        migrations.CreateModel(
            name="JobKey",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("fence", models.BigIntegerField(db_default=0, default=0)),
                ("done_by", models.UUIDField(blank=True, null=True)),
                ("keep_until", models.BigIntegerField()),
                ("places", models.IntegerField(db_default=0, default=0)),
            ],
            options={
                "indexes": [models.Index(fields=["keep_until"], name="dj_key_keep")],
            },
        ),
        migrations.CreateModel(
            name="JobResult",
            fields=[
                ("job_id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("handler", models.CharField(max_length=255)),
                ("name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("status", models.CharField(max_length=16)),
                ("value", models.TextField(default="null")),
                ("output", models.TextField(blank=True, default="")),
                ("attempts", models.PositiveIntegerField(db_default=0, default=0)),
                ("trace_id", models.CharField(blank=True, max_length=64, null=True)),
                ("tenant", models.CharField(blank=True, max_length=255, null=True)),
                ("worker", models.CharField(blank=True, db_default="", default="", max_length=128)),
                ("enqueued_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("body", models.TextField(blank=True, null=True)),
                ("expires", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "result",
                "indexes": [models.Index(fields=["expires"], name="dj_result_expires")],
            },
        ),
        migrations.CreateModel(
            name="EndedIds",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("start", models.CharField(max_length=8)),
                ("ids", models.TextField()),
                ("expires", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "ids of ended jobs",
                "verbose_name_plural": "ids of ended jobs",
                "indexes": [models.Index(fields=["start"], name="dj_ended_start")],
            },
        ),
        migrations.CreateModel(
            name="OperatorEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(blank=True, db_default="", default="", max_length=150)),
                ("action", models.CharField(max_length=64)),
                ("backend", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("queue", models.CharField(blank=True, db_default="", default="", max_length=64)),
                (
                    "subject",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("detail", models.JSONField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "operator event",
                "indexes": [models.Index(fields=["at"], name="dj_event_when")],
            },
        ),
        migrations.CreateModel(
            name="OutboxJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.UUIDField()),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("handler", models.CharField(max_length=255)),
                ("body", models.TextField()),
                ("signature", models.CharField(max_length=64)),
                ("key_id", models.CharField(max_length=64)),
                ("created", models.BigIntegerField()),
                ("refusals", models.IntegerField(db_default=0, default=0)),
                ("retry_at", models.BigIntegerField(db_default=0, default=0)),
                ("put_off_since", models.BigIntegerField(blank=True, null=True)),
                ("problem", models.TextField(blank=True, default="")),
            ],
            options={
                "verbose_name": "outbox job",
                "indexes": [
                    models.Index(fields=["backend", "queue", "id"], name="dj_outbox_order")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("backend", "job_id"), name="dj_outbox_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueControl",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("paused", models.BooleanField(db_default=False, default=False)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "rate_limit",
                    models.CharField(blank=True, db_default="", default="", max_length=32),
                ),
                ("concurrency", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "changed_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("changed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "queue",
                "permissions": (
                    ("pause_queue", "Can pause and resume queues"),
                    ("limit_queue", "Can limit the rate and the concurrency of queues"),
                ),
                "constraints": [
                    models.UniqueConstraint(fields=("backend", "queue"), name="dj_control_queue")
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueMeter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("starts", models.JSONField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("backend", "queue"), name="dj_meter_queue")
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueMinute",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("minute", models.BigIntegerField()),
                ("claimed", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("succeeded", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("failed", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("retried", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("dead", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("run_microseconds", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("wait_microseconds", models.PositiveBigIntegerField(db_default=0, default=0)),
            ],
            options={
                "verbose_name": "queue minute",
                "indexes": [models.Index(fields=["minute"], name="dj_minute_when")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("backend", "queue", "minute"), name="dj_minute_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_jobs.queueminute",),
        ),
        migrations.CreateModel(
            name="RelayLease",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("token", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("expires", models.BigIntegerField(db_default=0, default=0)),
                ("moving_to", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "verbose_name": "relay lease",
                "constraints": [
                    models.UniqueConstraint(fields=("backend", "queue"), name="dj_relay_queue")
                ],
            },
        ),
        migrations.CreateModel(
            name="ResolutionRun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("token", models.CharField(blank=True, max_length=64, null=True)),
                ("verb", models.CharField(max_length=16)),
                ("matching", models.JSONField()),
                ("reason", models.TextField(blank=True, default="")),
                ("rate", models.FloatField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("finished", "Finished"),
                            ("stopped", "Stopped"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("total", models.BigIntegerField()),
                ("upto", models.BigIntegerField()),
                ("cursor", models.BigIntegerField(db_default=0, default=0)),
                ("done", models.BigIntegerField(db_default=0, default=0)),
                ("refused", models.BigIntegerField(db_default=0, default=0)),
                ("passed_over", models.BigIntegerField(db_default=0, default=0)),
                ("problems", models.JSONField(blank=True, default=list)),
                ("next_at", models.BigIntegerField(db_default=0, default=0)),
                ("stepper", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("stepping_until", models.BigIntegerField(db_default=0, default=0)),
                (
                    "carrier",
                    models.CharField(blank=True, db_default="", default="", max_length=255),
                ),
                ("obstacle", models.TextField(blank=True, default="")),
                (
                    "started_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("started_at", models.DateTimeField()),
                ("stepped_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "ended_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
            ],
            options={
                "verbose_name": "run through dead letters",
                "verbose_name_plural": "runs through dead letters",
                "constraints": [models.UniqueConstraint(fields=("token",), name="dj_run_once")],
            },
        ),
        migrations.CreateModel(
            name="ScheduleState",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
                ("version", models.CharField(max_length=64)),
                ("begun", models.BigIntegerField(db_default=0, default=0)),
                ("decided_until", models.BigIntegerField()),
                ("next_due", models.BigIntegerField(blank=True, null=True)),
                ("paused", models.BooleanField(db_default=False, default=False)),
                (
                    "paused_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("reason", models.TextField(blank=True, default="")),
            ],
            options={
                "verbose_name": "schedule",
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedules"),
                    ("run_schedule", "Can run schedules now"),
                ),
                "indexes": [models.Index(fields=["next_due"], name="dj_schedule_due")],
            },
        ),
        migrations.CreateModel(
            name="ScheduleTick",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=255)),
                ("tick", models.BigIntegerField()),
                (
                    "decision",
                    models.CharField(
                        choices=[
                            ("enqueued", "Enqueued"),
                            ("caught-up", "caught up"),
                            ("run-now", "run now"),
                            ("waiting", "Waiting"),
                            ("skipped", "Skipped"),
                            ("missed", "Missed"),
                            ("failed", "failed to enqueue"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("succeeded", "Succeeded"),
                            ("skipped", "Skipped"),
                            ("cancelled", "Cancelled"),
                            ("dead", "Dead"),
                            ("unknown", "Unknown"),
                            ("none", "no job"),
                        ],
                        db_default="none",
                        default="none",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("backend", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("job_id", models.UUIDField(blank=True, null=True)),
                ("decided_at", models.DateTimeField()),
                (
                    "decided_by",
                    models.CharField(blank=True, db_default="", default="", max_length=150),
                ),
                ("press", models.CharField(blank=True, max_length=64, null=True)),
            ],
            options={
                "verbose_name": "tick",
                "indexes": [
                    models.Index(fields=["decided_at"], name="dj_tick_when"),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["outcome", "id"],
                        name="dj_tick_open",
                        where=models.Q(("outcome", "open")),
                    ),
                    django_jobs.models.indexes.PartialIndex(
                        fields=["decision", "tick"],
                        name="dj_tick_waiting",
                        where=models.Q(("decision", "waiting")),
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("key", "tick"), name="dj_tick_once"),
                    models.UniqueConstraint(fields=("press",), name="dj_tick_press"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("host", models.CharField(max_length=255)),
                ("pid", models.PositiveIntegerField()),
                ("queues", models.TextField(blank=True, default="")),
                ("processes", models.PositiveIntegerField(db_default=0, default=0)),
                ("concurrency", models.PositiveIntegerField(db_default=1, default=1)),
                ("running", models.PositiveIntegerField(db_default=0, default=0)),
                ("draining", models.BooleanField(db_default=False, default=False)),
                ("started_at", models.DateTimeField()),
                ("seen", models.BigIntegerField()),
            ],
            options={
                "permissions": (("drain_worker", "Can drain workers"),),
                "indexes": [models.Index(fields=["seen"], name="dj_worker_seen")],
            },
        ),
    ]
