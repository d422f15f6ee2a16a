"""The schema's history: numbered migrations, in order; `migrate.py` runs them.

A released migration is never edited. A change of a table is a new file mNNNN_subject.py and a
line in ALL, written so that processes of the version before go on working (new columns carry a
DEFAULT in the table), and so that every MySQL statement can be run twice.
"""

from store.db.migrations import (
    m0001_core,
    m0002_usage_rollups,
    m0003_codes,
    m0004_accounts,
    m0005_usage_caller,
    m0006_stored_responses,
    m0007_limits,
    m0008_channels,
    m0009_channel_status,
    m0010_codes_disabled,
    m0011_translation,
    m0012_hub,
    m0013_hub_keys,
    m0014_usage_rollups,
    m0015_access,
    m0016_overview,
    m0017_notices,
    m0018_upkeep,
    m0019_trace_id,
    m0020_usage_by_user,
    m0021_shared_ids,
    m0022_guarded_proxy,
    m0023_processes,
)
from store.db.migrations.ddl import Migration

ALL: tuple[Migration, ...] = (
    m0001_core.MIGRATION,
    m0002_usage_rollups.MIGRATION,
    m0003_codes.MIGRATION,
    m0004_accounts.MIGRATION,
    m0005_usage_caller.MIGRATION,
    m0006_stored_responses.MIGRATION,
    m0007_limits.MIGRATION,
    m0008_channels.MIGRATION,
    m0009_channel_status.MIGRATION,
    m0010_codes_disabled.MIGRATION,
    m0011_translation.MIGRATION,
    m0012_hub.MIGRATION,
    m0013_hub_keys.MIGRATION,
    m0014_usage_rollups.MIGRATION,
    m0015_access.MIGRATION,
    m0016_overview.MIGRATION,
    m0017_notices.MIGRATION,
    m0018_upkeep.MIGRATION,
    m0019_trace_id.MIGRATION,
    m0020_usage_by_user.MIGRATION,
    m0021_shared_ids.MIGRATION,
    m0022_guarded_proxy.MIGRATION,
    m0023_processes.MIGRATION,
)
