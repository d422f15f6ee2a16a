"""Why a call fails: the conditions, and the one exception that carries them.

Not here: what upstreams say of it (``adapters.upstream_errors``) and how a family tells its clients
(its ``fault.py``). Imported by everybody.
"""

from adapters.faults.conditions import (
    CODES,
    MAX_RETRY_AFTER_S,
    Condition,
    Fault,
    wrong_type,
    wrong_value,
)

__all__ = ["CODES", "MAX_RETRY_AFTER_S", "Condition", "Fault", "wrong_type", "wrong_value"]
