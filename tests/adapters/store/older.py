"""Databases as versions before have left them."""

_BACK = {
    "0018": ("DROP TABLE team_image",),
    "0017": (
        *(f"DROP TABLE {name}" for name in ("quota", "stored", "build_file")),
        *(f"ALTER TABLE sandbox DROP COLUMN {n}" for n in ("cpus", "memory_mib", "disk_mib")),
        "ALTER TABLE snapshot DROP COLUMN size_bytes",
    ),
    "0016": (
        "DROP INDEX ix_audit_team_id_team_seq",
        *(f"ALTER TABLE audit DROP COLUMN team_{name}" for name in ("seq", "previous", "hash")),
        "CREATE INDEX ix_audit_team_id_seq ON audit (team_id, seq)",
    ),
    "0015": ("DROP TABLE command_end",),
    "0014": tuple(
        f"ALTER TABLE {table} DROP COLUMN made_with"
        for table in ("token", "sign_in_link", "session")
    ),
}
"""What takes each revision back, the newest first."""


def back_to(revision: str) -> list[str]:
    """Statements that undo everything later."""
    undone = [each for later, each in _BACK.items() if later > revision]
    return [
        *(statement for statements in undone for statement in statements),
        f"UPDATE paddock_revision SET version_num = '{revision}'",
    ]
