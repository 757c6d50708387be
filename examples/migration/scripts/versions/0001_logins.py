"""The table as it was before TTL."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create it."""
    op.create_table(
        "logins",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("user", sa.String(40), nullable=False),
        sa.Column("seen_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("logins")
