"""An index over part of a table where the database has such, and over all of it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.ddl_references import Statement
    from django.db.models import Q


class PartialIndex(models.Index):
    """``models.Index(condition=...)`` does the same, and warns at every command on MariaDB.

    ``whole``: the fields of the index over all of the table, if not the same.
    """

    def __init__(
        self, *expressions: Any, where: Q, whole: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*expressions, **options)
        self.where = where
        self.whole = tuple(whole)

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **options: Any,
    ) -> Statement:
        if not schema_editor.connection.features.supports_partial_indexes:
            made = models.Index(fields=self.whole or self.fields, name=self.name)
        else:
            made = models.Index(fields=self.fields, name=self.name, condition=self.where)
        return made.create_sql(model, schema_editor, using, **options)

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        path, args, options = super().deconstruct()
        if self.whole:
            options["whole"] = self.whole
        return path, args, {**options, "where": self.where}
