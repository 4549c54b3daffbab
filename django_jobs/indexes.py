"""An index over part of a table where the database has such, and over all of it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.ddl_references import Statement
    from django.db.models import Q


class PartialIndex(models.Index):
    """``models.Index(condition=...)`` does the same, and warns at every command on MariaDB."""

    def __init__(self, *expressions: Any, where: Q, **options: Any) -> None:
        super().__init__(*expressions, **options)
        self.where = where

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **options: Any,
    ) -> Statement:
        if not schema_editor.connection.features.supports_partial_indexes:
            return super().create_sql(model, schema_editor, using, **options)
        part = models.Index(fields=self.fields, name=self.name, condition=self.where)
        return part.create_sql(model, schema_editor, using, **options)

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        path, args, options = super().deconstruct()
        return path, args, {**options, "where": self.where}
